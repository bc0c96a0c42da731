package sim

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Machines follows what instances hold of a cluster. Amounts are kept whole, in
// millicores and %, so that nothing is lost by adding and taking away.
type Machines struct {
	beta   float64
	window Window
	// of is the machine that each node is a part of.
	of       []int
	machines []testMachine
	// active is what the machines have that hold an instance, and held what
	// instances hold.
	active, held  amount
	busy          int
	last          time.Duration
	activeSeconds float64
	// unused and whole are the integrals of what active machines have left and of
	// all that they have.
	unused, whole float64
}

// testMachine is one machine: all that it has, and how many instances.
type testMachine struct {
	total     amount
	instances int
}

// amount is what counts of resources.
type amount struct{ cpu, gpu int }

func amountOf(r cluster.Resources) amount { return amount{r.CPU, r.GPU} }

func (a *amount) add(b amount, times int) {
	a.cpu += times * b.cpu
	a.gpu += times * b.gpu
}

func (a amount) weigh(beta float64) float64 {
	return Weigh(cluster.Resources{CPU: a.cpu, GPU: a.gpu}, beta)
}

// Weigh is β·cores + % of a GPU (INFless §3.4).
func Weigh(r cluster.Resources, beta float64) float64 {
	return beta*float64(r.CPU)/1000 + float64(r.GPU)
}

// NewMachines follows the nodes, all free; machine tells which machine each is a
// part of.
func NewMachines(nodes []cluster.Node, machineOf func(node string) string, beta float64, w Window) *Machines {
	m := &Machines{beta: beta, window: w, of: make([]int, len(nodes))}
	index := map[string]int{}
	for i, n := range nodes {
		name := machineOf(n.Name)
		k, ok := index[name]
		if !ok {
			k = len(m.machines)
			index[name] = k
			m.machines = append(m.machines, testMachine{})
		}
		m.of[i] = k
		m.machines[k].total.add(amountOf(n.Total), 1)
	}
	return m
}

// Begin has an instance hold r of a node.
func (m *Machines) Begin(now time.Duration, node int, r cluster.Resources) {
	m.advance(now)
	on := &m.machines[m.of[node]]
	if on.instances++; on.instances == 1 {
		m.active.add(on.total, 1)
		m.busy++
	}
	m.held.add(amountOf(r), 1)
}

// End is the end of an instance that held r of a node.
func (m *Machines) End(now time.Duration, node int, r cluster.Resources) {
	m.advance(now)
	on := &m.machines[m.of[node]]
	if on.instances--; on.instances == 0 {
		m.active.add(on.total, -1)
		m.busy--
	}
	m.held.add(amountOf(r), -1)
}

// Change has an instance hold to instead of from.
func (m *Machines) Change(now time.Duration, from, to cluster.Resources) {
	m.advance(now)
	m.held.add(amountOf(from), -1)
	m.held.add(amountOf(to), 1)
}

// advance adds up what was so since the last change.
func (m *Machines) advance(now time.Duration) {
	if d := m.window.Overlap(m.last, now).Seconds(); d > 0 && m.busy > 0 {
		whole := m.active.weigh(m.beta)
		m.whole += d * whole
		m.unused += d * (whole - m.held.weigh(m.beta))
		m.activeSeconds += d * float64(m.busy)
	}
	m.last = max(m.last, now)
}

// Now is what instances hold, weighted, how many machines have one, and what part
// of these, in %, is not held.
func (m *Machines) Now() (held float64, active int, fragmentPct float64) {
	held = m.held.weigh(m.beta)
	return held, m.busy, percent(m.active.weigh(m.beta)-held, m.active.weigh(m.beta))
}

// Finish returns the seconds that machines with an instance had, all added, and
// the part of what they have that was not held, in %, up to now.
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
