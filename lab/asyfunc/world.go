package asyfunc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/asyfunc/planning"
	"github.com/faas-infer/faas-infer/lab/sim"
)

const (
	// warmup is not measured. tick is the time between two looks at the instantaneous rate,
	// which is that of the last second; period is the paper's adaptation period.
	warmup = 30 * time.Second
	tick   = 20 * time.Millisecond
	second = time.Second / tick
	period = 10 * time.Second
)

// The kinds of events beside those of requests.
const (
	looked = sim.Kinds + iota
	// loaded: the instance with the number B, the A-th to start, has loaded.
	loaded
	// refilled: the node with the number B has an empty instance again.
	refilled
)

// controller starts and stops instances. Its decisions are those of package planning.
type controller interface {
	// batching is the policy that forms batches.
	batching() string
	// tick is called every 20 ms, period each adaptation period with the rate of the last
	// one.
	tick(w *world)
	period(w *world, rate float64)
}

// empties says where empty instances wait.
type empties int

const (
	none empties = iota
	// each: on each node that is in use.
	each
	// one: on one node in use.
	one
)

// place is a node.
type place struct {
	planning.Node
	// bodies counts instances with all weights; parts are the weights of others.
	bodies int
	parts  []int64
	// empty is true if an empty instance waits there.
	empty bool
}

// instance is a body or a shadow.
type instance struct {
	planning.Body
	id     cluster.InstanceID
	shadow *planning.Shadow // itself, of a shadow
	body   *instance        // its partner, of a shadow
	// granted are the cores that a shadow had at first, and may have again.
	granted int
	// own and weights are its memory in bytes: weights are what sharing saves.
	own, weights int64
	rows         int
	// times are those of its batches alone in ms, timeout BATCH's.
	times   []float64
	timeout time.Duration
	// ready is nil until it has loaded. busy is the time that was counted.
	ready  sim.Ready
	busy   time.Duration
	start  int32
	second cluster.InstanceID // further batches of a pipelined pair
	paired sim.Ready
	also   time.Duration
}

// world is one run.
type world struct {
	planner   *planning.Planner
	law       Law
	load      *Load
	control   controller
	events    sim.EventQueue
	requests  *sim.Requests
	window    sim.Window
	now       time.Duration
	nodes     []place
	empties   empties
	instances []*instance // by number; those of stopped ones are nil, and free
	numbers   []int
	started   int32
	arrivals  [second]uint64
	ticks     int
	last      uint64 // requests at the beginning of the period
	next      int
	measure   measure
}

// measure has the integrals over the measured time.
type measure struct {
	since                            time.Duration
	own, shared, cores, busy, bodies float64
	nowOwn, nowShared, nowBodies     float64
	nowCores                         int
	shadows, twins, shorts           int
}

// newWorld returns a world without instances.
func newWorld(p *planning.Planner, law Law, load *Load, nodes []planning.Node, c controller, e empties) (*world, error) {
	w := &world{planner: p, law: law, load: load, control: c, empties: e, window: sim.Window{From: warmup, To: load.Length}}
	for i, n := range nodes {
		w.nodes = append(w.nodes, place{Node: n, empty: e == each || e == one && i == 0})
	}
	policy, err := batching.New(c.batching(), batching.Options{SLO: w.slo()})
	if err != nil {
		return nil, err
	}
	w.requests = sim.NewRequests(sim.TrafficOptions{
		Policy: policy, SLO: w.slo(), Window: w.window, Events: &w.events, Next: w.arrival,
		OnCold: func() {}, OnDrained: func(id cluster.InstanceID) { w.requests.Forget(id) },
	})
	w.events.Plan(0, looked, 0, 0)
	return w, nil
}

func (w *world) slo() time.Duration { return ms(w.planner.Settings.SLO) }

func ms(x float64) time.Duration { return time.Duration(x * float64(time.Millisecond)) }

func (w *world) arrival() (time.Duration, bool) {
	if w.next == len(w.load.Times) {
		return 0, false
	}
	w.next++
	return w.load.Times[w.next-1], true
}

// run simulates until the load's end.
func (w *world) run(ctx context.Context) error {
	for n := 0; ; n++ {
		e, ok := w.events.Next()
		if !ok || e.At > w.load.Length+2*w.slo() {
			break
		}
		w.now = e.At
		if n&0xffff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		switch e.Kind {
		case looked:
			w.look()
		case loaded:
			if in := w.instances[e.B]; in != nil && in.start == e.A {
				w.loaded(in)
			}
		case refilled:
			w.refill(int(e.B))
		default:
			w.requests.Handle(e)
		}
	}
	w.now = w.load.Length
	w.count()
	return w.check()
}

// look lets the controller act.
func (w *world) look() {
	arrived := w.requests.Total().Arrived
	w.arrivals[w.ticks%int(second)] = arrived
	if w.ticks%int(period/tick) == 0 {
		w.control.period(w, float64(arrived-w.last)/period.Seconds())
		w.last = arrived
	}
	w.control.tick(w)
	w.ticks++
	if w.now < w.load.Length {
		w.events.Plan(w.now+tick, looked, 0, 0)
	}
}

// instantaneous is the rate of the last second.
func (w *world) instantaneous() float64 {
	now := w.arrivals[w.ticks%int(second)]
	if w.ticks < int(second) {
		return float64(now) / max(tick, w.now).Seconds()
	}
	return float64(now-w.arrivals[(w.ticks+1)%int(second)]) / (time.Second - tick).Seconds()
}

// free are the nodes as decisions see them.
func (w *world) free() []planning.Node {
	out := make([]planning.Node, len(w.nodes))
	for i, n := range w.nodes {
		out[i] = n.Node
	}
	return out
}

// bodies are those that start or serve.
func (w *world) bodies() (out []*planning.Body) {
	for _, in := range w.instances {
		if in != nil && in.shadow == nil {
			out = append(out, &in.Body)
		}
	}
	return out
}

// start orders an instance that can serve after a time.
func (w *world) start(in *instance, after float64) {
	if n := len(w.numbers); n > 0 {
		in.ID, w.numbers = w.numbers[n-1], w.numbers[:n-1]
	} else {
		in.ID = len(w.instances)
		w.instances = append(w.instances, nil)
	}
	w.started++
	in.start, in.id = w.started, cluster.InstanceID(fmt.Sprintf("i%d", w.started))
	w.instances[in.ID] = in
	w.hold(in, 1)
	w.events.Plan(w.now+ms(after), loaded, in.start, int32(in.ID))
}

// forget removes an instance.
func (w *world) forget(in *instance) {
	w.hold(in, -1)
	w.instances[in.ID] = nil
	w.numbers = append(w.numbers, in.ID)
	w.count()
}

// hold adds an instance to what is held, or takes it away.
func (w *world) hold(in *instance, sign int) {
	n := &w.nodes[in.Node]
	n.Cores -= sign * in.Cores
	n.Memory -= int64(sign) * (in.own + in.weights)
	switch {
	case in.shadow == nil:
		n.bodies += sign
	case sign > 0:
		n.parts = append(n.parts, in.weights)
	default:
		i := slices.Index(n.parts, in.weights)
		n.parts = slices.Delete(n.parts, i, i+1)
	}
	w.count()
}

// count closes the integrals up to now and takes the present state.
func (w *world) count() {
	m := &w.measure
	dt := w.window.Overlap(m.since, w.now).Seconds()
	m.own += m.nowOwn * dt
	m.shared += m.nowShared * dt
	m.cores += float64(m.nowCores) * dt
	m.bodies += m.nowBodies * dt
	m.since, m.nowOwn, m.nowShared, m.nowCores, m.nowBodies = w.now, 0, 0, 0, 0
	for _, in := range w.instances {
		if in == nil {
			continue
		}
		m.nowOwn += float64(in.own + in.weights)
		m.nowShared += float64(in.own)
		m.nowCores += in.Cores
		if in.shadow == nil {
			m.nowBodies++
		}
	}
	weights := w.planner.Model.Weights(w.planner.Model.All())
	for _, n := range w.nodes {
		if n.bodies > 0 {
			m.nowShared += float64(weights)
		} else if len(n.parts) > 0 {
			m.nowShared += float64(slices.Max(n.parts))
		}
		if n.empty && (n.bodies > 0 || len(n.parts) > 0) {
			m.nowOwn += float64(w.law.Own)
			m.nowShared += float64(w.law.Own)
		}
	}
}

// check returns an error if a node gave away more than it has.
func (w *world) check() error {
	for i, n := range w.nodes {
		if n.Cores < 0 || n.Memory < 0 {
			return fmt.Errorf("node %d has %d cores and %d bytes left", i, n.Cores, n.Memory)
		}
	}
	return nil
}
