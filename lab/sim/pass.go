package sim

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const (
	// passPause is the least time between two looks at the load, however many
	// requests ask for one, and idleTicks how many ticks apart they are while
	// there is nothing to look at: as in provider/control.
	passPause = 5 * time.Millisecond
	idleTicks = 10
	// sameRate is the part of a rate by which it may be off before the batching
	// policy is told, as there.
	sameRate = 0.01
)

// wake has the engine asked as soon as it may be.
func (r *run) wake() { r.planPass(max(r.now, r.rested)) }

// planPass has the engine asked at a time, unless it is asked sooner.
func (r *run) planPass(at time.Duration) {
	if r.passAt < 0 || at < r.passAt {
		r.passAt = at
		r.events.Plan(at, pass, 0, 0)
	}
}

// pass asks the engine what to do and does it, as provider/control does.
func (r *run) pass() {
	r.passAt, r.rested = -1, r.now+passPause
	r.looked = r.looked[:0]
	busy := false
	for _, fn := range r.functions {
		f := r.look(fn)
		busy = busy || len(f.Instances) > 0 || f.Waiting > 0 || f.Min > 0
		r.looked = append(r.looked, f)
	}
	began := time.Now()
	plan := r.engine.Scale(TimeAt(r.now), r.looked, r.nodes)
	took := time.Since(began)
	r.result.Passes++
	r.result.Decide += took
	r.result.DecideMax = max(r.result.DecideMax, took)
	r.result.Unplaced += len(plan.Unplaced)
	r.apply(plan)
	next := r.Tick
	if !busy {
		next *= idleTicks
	}
	r.planPass(r.now + next)
}

// apply carries a plan out.
func (r *run) apply(plan scaling.Plan) {
	for _, s := range plan.Stop {
		r.stop(s)
	}
	for _, s := range plan.Resize {
		r.resize(s)
	}
	for _, s := range plan.Park {
		r.park(s)
	}
	for _, s := range plan.Unpark {
		r.unpark(s)
	}
	for _, s := range plan.Start {
		if r.start(s); r.err != nil {
			return
		}
	}
}

// look is a function as the engine sees it.
func (r *run) look(fn *function) scaling.Function {
	fn.carrier.Advance(r.now)
	now, waiting := TimeAt(r.now), fn.carrier.Waiting()
	busy := waiting > 0
	// As the provider does, which starts instances with the largest batch that there is.
	largest := 0
	if r.System.Settings().Joint {
		for _, c := range fn.list {
			largest = max(largest, c.Config.Batch)
		}
	}
	fn.running = fn.running[:0]
	for _, in := range fn.instances {
		x := scaling.Running{
			ID: in.id, Node: r.nodes[in.node].Name, Config: in.config, Largest: largest, Exec: in.exec, Mean: in.mean, Revision: in.revision, State: in.state,
		}
		if in.loaded {
			since, idle := in.serving.IdleSince()
			if idle {
				x.IdleSince = TimeAt(since)
			}
			busy = busy || !idle && in.state == cluster.Ready
		}
		if x.Parked = in.parked; in.away && !in.parked {
			x.IdleSince = time.Time{}
		}
		fn.running = append(fn.running, x)
	}
	rate, decision := fn.activity.Look(now, fn.Name, fn.carrier.Total().Arrived, busy, r.cold, r.Tick)
	fn.tuner.Within(r.room(fn))
	list, revision := fn.tuner.Candidates(now, rate)
	f := scaling.Function{
		Name: fn.Name, Revision: revision, SLO: fn.SLO, Percentile: fn.Percentile, Queue: r.System.Queue(), Configs: list, Instances: fn.running,
		Rate: rate, Waiting: waiting, Min: fn.MinInstances, Max: fn.MaxInstances, ScaleToZero: true,
		PreWarmAt: decision.PreWarmAt, RetireAt: decision.RetireAt, ParkAt: decision.ParkAt,
	}
	if rate > 0 {
		f.Min = max(f.Min, fn.tuner.Instances())
	}
	if len(list) > 0 && (len(fn.list) == 0 || &list[0] != &fn.list[0]) {
		r.retune(fn, revision)
	}
	if fn.list = list; f.Queue == capacity.PerInstance {
		r.deal(fn, rate)
	}
	return f
}

// room is what there is for a function's instances, those that it has being replaced.
func (r *run) room(fn *function) systems.Room {
	return systems.RoomOn(r.nodes, func() map[string]cluster.Resources {
		held := map[string]cluster.Resources{}
		for i := range fn.running {
			in := &fn.running[i]
			held[in.Node] = held[in.Node].Add(in.Holds())
		}
		return held
	})
}

// retune tells instances of the batch size and timeout that were chosen for the buffer.
func (r *run) retune(fn *function, revision uint64) {
	choice, ok := fn.tuner.Choice()
	if !ok {
		return
	}
	for i, in := range fn.instances {
		if in.revision != revision || in.config == choice.Config && in.timeout == choice.Timeout {
			continue
		}
		tables := r.times(fn, choice.Config)
		if tables == nil || in.config.Resources != choice.Config.Resources {
			continue
		}
		r.settle(in)
		in.config, in.exec, in.mean, in.timeout, in.tables = choice.Config, choice.Exec, choice.Mean, choice.Timeout, tables
		seen := &fn.running[i]
		seen.Config, seen.Exec, seen.Mean = in.config, in.exec, in.mean
		if in.serves() {
			r.up(in)
		}
	}
}

// deal tells the batching policy how much of the load each instance is to get
// (r_i, INFless §3.2).
func (r *run) deal(fn *function, rate float64) {
	serving, ranges := r.serving[:0], r.ranges[:0]
	for _, in := range fn.instances {
		if in.serves() {
			serving = append(serving, in)
			full := in.tables.predicted[len(in.tables.predicted)-1]
			ranges = append(ranges, capacity.Bounds(in.config.Batch, full, fn.SLO, capacity.Exact))
		}
	}
	r.serving, r.ranges = serving, ranges
	for i, rate := range capacity.Rates(rate, ranges) {
		if in := serving[i]; math.Abs(rate-in.rate) > sameRate*in.rate {
			in.rate = rate
			r.up(in)
		}
	}
}

// resize gives an instance another CPU quota at once.
func (r *run) resize(s scaling.Resize) {
	in, ok := r.instances[s.ID]
	if !ok || !in.serves() && in.state != cluster.Starting || s.Config == in.config {
		return
	}
	tables := r.times(in.fn, s.Config)
	if tables == nil {
		return
	}
	r.settle(in)
	r.claim(in, s.Config.Resources)
	if in.begun {
		r.hold(in, s.Config.Resources)
	}
	in.config, in.exec, in.mean, in.tables = s.Config, s.Exec, s.Mean, tables
	if r.window.Has(r.now) {
		r.result.Resizes++
	}
	if in.serves() {
		r.up(in)
	}
}
