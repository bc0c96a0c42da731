package sim

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// wake plans a pass as soon as possible.
func (r *run) wake() { r.planPass(max(r.now, r.rested)) }

// planPass plans a pass at a time, unless one is planned before.
func (r *run) planPass(at time.Duration) {
	if r.passAt < 0 || at < r.passAt {
		r.passAt = at
		r.events.Plan(at, pass, 0, 0)
	}
}

// pass calls the engine and carries out its plan, as the provider does.
func (r *run) pass() {
	r.passAt, r.rested = -1, r.now+systems.Pause
	r.views = r.views[:0]
	for _, fn := range r.functions {
		r.views = append(r.views, r.view(fn))
	}
	began := time.Now()
	plan := r.engine.Scale(TimeAt(r.now), r.views, r.nodes)
	took := time.Since(began)
	r.result.Passes++
	r.result.Decide += took
	r.result.DecideMax = max(r.result.DecideMax, took)
	r.result.Unplaced += len(plan.Unplaced)
	for _, fn := range r.functions {
		fn.unplaced = slices.ContainsFunc(plan.Unplaced, func(u scaling.Unplaced) bool { return u.Function == fn.Name })
	}
	for _, x := range plan.Carried {
		r.find(x.Function).carried = x.Over
	}
	r.planPass(r.now + systems.CarryOut(plan, r.views, r.Tick, false, driver{r}))
}

// driver carries out plans on simulated instances.
type driver struct{ r *run }

// Stop implements [systems.Driver].
func (d driver) Stop(s scaling.Stop) { d.r.stop(s) }

// Resize implements [systems.Driver].
func (d driver) Resize(s scaling.Resize) { d.r.resize(s) }

// Park implements [systems.Driver].
func (d driver) Park(s scaling.Park) { d.r.park(s) }

// Unpark implements [systems.Driver].
func (d driver) Unpark(s scaling.Unpark) { d.r.unpark(s) }

// Pair implements [systems.Driver]. Simulated functions have no shadows.
func (d driver) Pair(scaling.Pair) {}

// Start implements [systems.Driver]. After an error it starts nothing.
func (d driver) Start(s scaling.Start) {
	if d.r.err == nil {
		d.r.start(s)
	}
}

// view returns a function as the engine sees it.
func (r *run) view(fn *function) scaling.Function {
	fn.carrier.Advance(r.now)
	now, waiting := TimeAt(r.now), fn.carrier.Waiting()
	rate, decision := fn.activity.Look(now, fn.Name, fn.carrier.Total().Arrived, waiting > 0 || fn.executes(), r.cold, r.Tick)
	if r.Told {
		rate = fn.Arrivals.(Rate).Rate(r.now)
	}
	var lesson Lesson
	if fn.Learner != nil {
		lesson = r.learn(fn, fn.unplaced, rate)
	}
	largest := r.System.Settings().Largest(fn.list)
	fn.running = fn.running[:0]
	for _, in := range fn.instances {
		x := scaling.RunningOf(&in.Instance, false)
		x.Largest, x.Exec, x.Mean = largest, in.exec, in.mean
		if fn.Learner != nil {
			x.Largest = in.Config.Batch
			if x.Config.Batch, x.Exec, x.Mean = fn.Learner.Full(in.Config); x.Config.Batch == 0 {
				x.Config.Batch = 1
				x.Replace()
			}
		}
		if in.loaded {
			x.Loading = fn.loading(in.Artefact.Name)
			x.Busy, x.Profiled = in.serving.Executed()
			since, idle := in.serving.IdleSince()
			if idle {
				x.IdleSince = TimeAt(since)
			}
		}
		if in.away && !in.Parked {
			x.IdleSince = time.Time{}
		}
		fn.running = append(fn.running, x)
	}
	fn.tuner.Within(r.room(fn))
	list, revision := lesson.Candidates, uint64(1)
	if fn.Learner == nil {
		list, revision = fn.tuner.Candidates(now, rate)
	}
	f := scaling.Function{
		Name: fn.Name, Revision: revision, SLO: fn.SLO, ColdWait: r.ColdWait, Percentile: fn.Percentile, Queue: r.System.Queue(), Configs: list, Instances: fn.running, Accurate: fn.Accurate,
		Rate: rate, Waiting: waiting, Min: fn.MinInstances, Max: fn.MaxInstances, ScaleToZero: true,
		PreWarmAt: decision.PreWarmAt, RetireAt: decision.RetireAt, ParkAt: decision.ParkAt,
	}
	if fn.Learner != nil {
		f.SLO, f.Level, f.Credit = lesson.Objective, lesson.Level, lesson.Credit
	}
	if lesson.Percentile > 0 {
		f.Percentile = lesson.Percentile
	}
	if fn.Variants != nil {
		f.ParkAt = time.Time{} // An instance of a variant costs as much as its memory.
	}
	if rate > 0 {
		f.Min = max(f.Min, fn.tuner.Instances())
	}
	if fn.Learner == nil && len(list) > 0 && (len(fn.list) == 0 || &list[0] != &fn.list[0]) {
		r.retune(fn, revision)
	}
	if fn.list = list; f.Queue == capacity.PerInstance {
		r.deal(fn, rate)
	}
	return f
}

// executes reports whether an instance of the function holds a request.
func (fn *function) executes() bool {
	return slices.ContainsFunc(fn.instances, func(in *instance) bool {
		if !in.loaded || in.State != cluster.Ready {
			return false
		}
		_, idle := in.serving.IdleSince()
		return !idle
	})
}

// room returns the resources for a function's instances if its present ones are replaced.
func (r *run) room(fn *function) systems.Room {
	return systems.RoomOn(r.nodes, cluster.Tenant{}, func() map[string][]systems.Held {
		held := map[string][]systems.Held{}
		for i := range fn.running {
			in := &fn.running[i]
			for node, part := range cluster.Over(in.Node, in.Nodes, in.Holds()) {
				held[node] = append(held[node], systems.Held{Resources: part, Device: in.Device})
			}
		}
		return held
	})
}

// retune gives instances the batch size and timeout that the tuner has chosen.
func (r *run) retune(fn *function, revision uint64) {
	choice, ok := fn.tuner.Choice()
	if !ok {
		return
	}
	for i, in := range fn.instances {
		if in.Revision != revision || in.Config == choice.Config && in.timeout == choice.Timeout {
			continue
		}
		tables := r.times(fn, in.Artefact.Name, choice.Config)
		if tables == nil || in.Config.Resources != choice.Config.Resources {
			continue
		}
		r.settle(in)
		in.Config, in.exec, in.mean, in.timeout, in.tables = choice.Config, choice.Exec, choice.Mean, choice.Timeout, tables
		seen := &fn.running[i]
		seen.Config, seen.Exec, seen.Mean = in.Config, in.exec, in.mean
		if in.serves() {
			r.up(in)
		}
	}
}

// deal gives the batching policy each instance's part of the load (r_i, INFless §3.2).
func (r *run) deal(fn *function, rate float64) {
	serving, ranges := r.serving[:0], r.ranges[:0]
	for _, in := range fn.instances {
		if in.serves() {
			serving = append(serving, in)
			full := in.tables.predicted[len(in.tables.predicted)-1]
			ranges = append(ranges, r.System.Range(in.Config, full, fn.SLO))
		}
	}
	r.serving, r.ranges = serving, ranges
	systems.Deal(rate, ranges, func(i int) *float64 { return &serving[i].rate }, func(i int) { r.up(serving[i]) })
}

// resize gives an instance another CPU quota at once.
func (r *run) resize(s scaling.Resize) {
	in, ok := r.instances[s.ID]
	if !ok || !in.serves() && in.State != cluster.Starting || s.Config == in.Config {
		return
	}
	tables := r.times(in.fn, in.Artefact.Name, s.Config)
	if tables == nil {
		return
	}
	r.settle(in)
	r.claim(in, s.Config.Resources)
	if in.begun {
		r.hold(in, s.Config.Resources)
	}
	in.Config, in.exec, in.mean, in.tables = s.Config, s.Exec, s.Mean, tables
	if r.window.Has(r.now) {
		r.result.Resizes++
	}
	if in.serves() {
		r.up(in)
	}
}
