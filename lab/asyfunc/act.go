package asyfunc

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/asyfunc/planning"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// body orders a body for batches of up to so many rows.
func (w *world) body(node, cores, rows int, timeout time.Duration, after float64) *instance {
	all, weights := w.planner.Memory(rows)
	in := &instance{Body: planning.Body{Node: node, Cores: cores}, own: all - weights, weights: weights, rows: rows, timeout: timeout}
	in.times = w.planner.Times(cores)[:rows]
	w.start(in, after)
	return in
}

// whole is the time in ms until a body serves that starts without an empty instance.
func (w *world) whole() float64 {
	return w.law.Start + w.law.LoadFixed + w.planner.Model.Load(w.planner.Model.All())
}

// adopt is the time in ms until a node has an empty instance. It takes the one that waits there;
// another one takes its place after the time of a start.
func (w *world) adopt(node int) float64 {
	n := &w.nodes[node]
	if !n.empty {
		return w.law.Start
	}
	n.empty = false
	w.events.Plan(w.now+ms(w.law.Start), refilled, 0, int32(node))
	return 0
}

// refill puts an empty instance on a node, or, if there is one in all, on the node with the most
// free cores of those in use.
func (w *world) refill(node int) {
	if w.empties == one {
		for i, n := range w.nodes {
			used, better := n.bodies > 0 && n.Cores > 0, n.Cores > w.nodes[node].Cores
			if used && (better || w.nodes[node].bodies == 0 || w.nodes[node].Cores == 0) {
				node = i
			}
		}
	}
	w.nodes[node].empty = true
	w.count()
}

// pair orders a shadow for a body. The body's activations grow with the pair's batch.
func (w *world) pair(body *instance, s planning.Shadow) {
	in := &instance{Body: planning.Body{Node: s.Node, Cores: s.Cores}, body: body, shadow: &s, granted: s.Cores}
	in.weights = w.planner.Model.Weights(s.Pair.Phi)
	in.own = s.Memory - in.weights
	s.Needed = w.now
	body.Shadow = in.shadow
	w.start(in, w.adopt(s.Node)+w.law.LoadFixed+s.Pair.Load)
	in.shadow.ID = in.ID
	w.activate(body)
	w.measure.shadows++
}

// activate sets a body's memory besides its weights.
func (w *world) activate(body *instance) {
	w.hold(body, -1)
	all, weights := w.planner.Memory(body.rows)
	body.own = all - weights
	if body.Shadow != nil {
		body.own = max(body.own, w.planner.Model.Own+body.Shadow.Body)
	}
	w.hold(body, 1)
}

// loaded lets an instance serve: a shadow changes its body's times.
func (w *world) loaded(in *instance) {
	if in.shadow == nil {
		in.ready = w.up(in.id, in.present(w), in.timeout)
		return
	}
	w.settle(in.body) // What it did alone.
	in.ready = idle{}
	if in.body.ready != nil {
		w.tell(in.body)
	}
}

// present are the times of a body now: with its shadow, if that serves.
func (in *instance) present(w *world) []float64 {
	if in.Shadow == nil || w.instances[in.Shadow.ID] == nil || w.instances[in.Shadow.ID].ready == nil {
		return in.times
	}
	return in.Shadow.Times()
}

// tell gives the batching policy the present times of a body.
func (w *world) tell(in *instance) {
	times := in.present(w)
	in.ready = w.up(in.id, times, in.timeout)
	streams := 1
	if in.Shadow != nil && w.instances[in.Shadow.ID].ready != nil {
		streams, _ = in.Shadow.Streams()
	}
	switch {
	case streams == 2 && in.second == "":
		w.started++ // An ID that no draining instance has.
		in.second = cluster.InstanceID(fmt.Sprintf("i%d", w.started))
		in.paired, in.also = w.up(in.second, times, in.timeout), 0
	case streams == 1 && in.second != "":
		w.down(in.second)
		in.second = ""
	}
}

// up makes an instance available to the batching policy, or changes its times.
func (w *world) up(id cluster.InstanceID, times []float64, timeout time.Duration) sim.Ready {
	exec := make([]time.Duration, len(times))
	for b, t := range times {
		exec[b] = ms(t)
		if b > 0 {
			exec[b] = max(exec[b], exec[b-1])
		}
	}
	return w.requests.Up(w.now, sim.Peer{
		Instance: batching.Instance{ID: id, Config: cluster.Config{Batch: len(exec)}, Exec: exec, Timeout: timeout},
		Truth:    exec,
	})
}

// down takes an instance from the batching policy.
func (w *world) down(id cluster.InstanceID) {
	if w.requests.Down(w.now, id) {
		w.requests.Forget(id)
	}
}

// executed is the time of an instance's executions up to now.
func (w *world) executed(r sim.Ready) time.Duration {
	busy := r.Used().Busy
	if p, ok := r.(interface{ BusyUntil() time.Duration }); ok {
		busy -= w.window.Overlap(w.now, p.BusyUntil())
	}
	return busy
}

// settle counts an instance's work up to now.
func (w *world) settle(in *instance) {
	if in.ready == nil || in.shadow != nil {
		return
	}
	used := w.executed(in.ready)
	work := (used - in.busy).Seconds()
	in.busy = used
	if in.second != "" {
		// The two batches of a pipelined pair share it.
		used = w.executed(in.paired)
		work = (work + (used - in.also).Seconds()) / 2
		in.also = used
	}
	w.measure.busy += work * float64(in.Cores)
	if in.Shadow != nil {
		if s := w.instances[in.Shadow.ID]; s != nil && s.ready != nil {
			w.measure.busy += work * float64(s.Cores) * within(w.planner.Model, in.Cores, &in.Shadow.Pair)
		}
	}
}

// within is the part of a pair's time in which the shadow computes.
func within(m *shadow.Model, cores int, p *shadow.Pair) float64 {
	if p.Best.Period <= 0 {
		return 0
	}
	own := m.Time(0, len(m.Blocks), p.Best.Rows, 1000*cores)
	for _, r := range p.Phi {
		own -= m.Time(r.First, r.End, p.Best.Rows, 1000*cores)
	}
	if !p.Best.Waits {
		return 1
	}
	return max(0, 1-max(0, own)/p.Best.Period)
}

// unpair stops a body's shadow.
func (w *world) unpair(body *instance) {
	s := w.instances[body.Shadow.ID]
	w.settle(body)
	body.Shadow = nil
	w.forget(s)
	w.activate(body)
	if body.ready != nil {
		w.tell(body)
	}
}

// stop stops a body and its shadow. Its batch is answered.
func (w *world) stop(in *instance) {
	if in.Shadow != nil {
		w.unpair(in)
	}
	w.settle(in)
	if in.ready != nil {
		w.down(in.id)
	}
	w.forget(in)
}

// resize changes a body's share, as far as its node has it, and that of its shadow.
func (w *world) resize(in *instance, cores, rows int) {
	cores, rows = min(cores, in.Cores+w.nodes[in.Node].Cores), max(rows, in.rows)
	helper, help := (*instance)(nil), 0
	if in.Shadow != nil {
		helper = w.instances[in.Shadow.ID]
		help = min(cores, helper.granted, helper.Cores+w.nodes[helper.Node].Cores)
	}
	if cores == in.Cores && rows == in.rows && (helper == nil || help == helper.Cores) {
		return
	}
	w.settle(in)
	w.hold(in, -1)
	in.Cores, in.rows, in.times = cores, rows, w.planner.Times(cores)[:rows]
	w.hold(in, 1)
	if helper != nil {
		w.hold(helper, -1)
		*helper.shadow = w.planner.At(helper.shadow, cores, help)
		helper.Cores = help
		w.hold(helper, 1)
	}
	w.activate(in)
	if in.ready != nil {
		w.tell(in)
	}
}

// settleAll counts the work of all.
func (w *world) settleAll() {
	for _, in := range w.instances {
		if in != nil {
			w.settle(in)
		}
	}
}

// idle is a shadow: its body's work is counted.
type idle struct{}

func (idle) IdleSince() (time.Duration, bool)         { return 0, true }
func (idle) Used() sim.Use                            { return sim.Use{} }
func (idle) Executed() (time.Duration, time.Duration) { return 0, 0 }
