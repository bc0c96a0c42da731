package sim

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Machines tracks what instances hold of a cluster. Amounts are whole millicores and %, so
// that adding and subtracting loses nothing.
type Machines struct {
	beta   float64
	window Window
	// of has the machine of each node.
	of       []int
	machines []machineUse
	// active is the sum of the machines with an instance, held the sum of what instances
	// hold.
	active, held  amount
	busy          int
	last          time.Duration
	activeSeconds float64
	// whole is the integral of active over time, unused that of the part that no
	// instance holds.
	unused, whole float64
}

// machineUse is one machine: its resources and its number of instances.
type machineUse struct {
	total     amount
	instances int
}

// amount is the part of resources that Weigh counts, in millicores and %.
type amount struct{ cpu, gpu int }

func amountOf(r cluster.Resources) amount { return amount{r.CPU, r.GPU} }

func (a *amount) add(b amount, times int) {
	a.cpu += times * b.cpu
	a.gpu += times * b.gpu
}

func (a amount) weigh(beta float64) float64 {
	return Weigh(cluster.Resources{CPU: a.cpu, GPU: a.gpu}, beta)
}

// Weigh returns β·cores + % of a GPU (INFless §3.4).
func Weigh(r cluster.Resources, beta float64) float64 {
	return beta*float64(r.CPU)/1000 + float64(r.GPU)
}

// NewMachines tracks the nodes, all free. machineOf returns the machine of a node.
func NewMachines(nodes []cluster.Node, machineOf func(node string) string, beta float64, w Window) *Machines {
	m := &Machines{beta: beta, window: w, of: make([]int, len(nodes))}
	index := map[string]int{}
	for i, n := range nodes {
		name := machineOf(n.Name)
		k, ok := index[name]
		if !ok {
			k = len(m.machines)
			index[name] = k
			m.machines = append(m.machines, machineUse{})
		}
		m.of[i] = k
		m.machines[k].total.add(amountOf(n.Total), 1)
	}
	return m
}

// Begin adds an instance that holds r of a node.
func (m *Machines) Begin(now time.Duration, node int, r cluster.Resources) {
	m.advance(now)
	on := &m.machines[m.of[node]]
	if on.instances++; on.instances == 1 {
		m.active.add(on.total, 1)
		m.busy++
	}
	m.held.add(amountOf(r), 1)
}

// End removes an instance that held r of a node.
func (m *Machines) End(now time.Duration, node int, r cluster.Resources) {
	m.advance(now)
	on := &m.machines[m.of[node]]
	if on.instances--; on.instances == 0 {
		m.active.add(on.total, -1)
		m.busy--
	}
	m.held.add(amountOf(r), -1)
}

// Change lets an instance hold to instead of from.
func (m *Machines) Change(now time.Duration, from, to cluster.Resources) {
	m.advance(now)
	m.held.add(amountOf(from), -1)
	m.held.add(amountOf(to), 1)
}

// advance adds the time since the last change to the integrals.
func (m *Machines) advance(now time.Duration) {
	if d := m.window.Overlap(m.last, now).Seconds(); d > 0 && m.busy > 0 {
		whole := m.active.weigh(m.beta)
		m.whole += d * whole
		m.unused += d * (whole - m.held.weigh(m.beta))
		m.activeSeconds += d * float64(m.busy)
	}
	m.last = max(m.last, now)
}

// Now returns the weighted sum of what instances hold, the number of machines with an
// instance, and the part of these machines in % that no instance holds.
func (m *Machines) Now() (held float64, active int, fragmentPct float64) {
	held = m.held.weigh(m.beta)
	return held, m.busy, percent(m.active.weigh(m.beta)-held, m.active.weigh(m.beta))
}

// Finish returns the sum of the machines' seconds with an instance, and the part in % of
// these machines that no instance held, up to now.
func (m *Machines) Finish(now time.Duration) (activeSeconds, fragmentPct float64) {
	m.advance(now)
	return m.activeSeconds, percent(m.unused, m.whole)
}

func percent(part, of float64) float64 {
	if of <= 0 {
		return 0
	}
	return 100 * part / of
}
