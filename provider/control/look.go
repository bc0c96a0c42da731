package control

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// recordPause is the minimum time between two updates of the metrics, per instance. The
// metrics of 10,000 instances are updated once a second, those of a few at each look.
const recordPause = 100 * time.Microsecond

// scale looks at all functions, asks the engine for a plan and carries it out. It returns the
// time until the next look if nothing happens before. Only Run calls it, so the engine serves
// one caller at a time. The engine plans without the lock: with many functions that takes
// longer than a deployment, a description or an instance's event may wait. See carryOut for
// what has changed meanwhile.
func (c *Controller) scale(now time.Time) time.Duration {
	nodes, err := c.options.Backend.Nodes(c.keeper.Context())
	if c.keeper.Ended() || c.keeper.Blind(err) {
		return c.options.Tick
	}
	leading := c.peers.turn()
	functions, busy := c.lookAll(now, leading, nodes)
	plan := c.engine.Scale(now, functions, nodes)
	return c.carryOut(now, leading, plan, functions, nodes, busy)
}

// lookAll returns the functions as the engine sees them, and sets the free resources of
// nodes. The next call overwrites the functions. busy says that a function pauses
// after a failure and needs a look soon.
func (c *Controller) lookAll(now time.Time, leading bool, nodes []cluster.Node) (functions []scaling.Function, busy bool) {
	news := c.options.Replica.Listen(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers.takeNews(news)
	if leading {
		c.keeper.StopUnclaimed(now, func(name string) bool { return c.functions[name] != nil })
	}
	c.keeper.Free(nodes)
	c.nodes = nodes
	changed := c.types.look(nodes)
	if c.types.pace(now) || changed {
		c.types.retype(c.functions)
	}
	c.arrivals.look(now, leading)
	functions = c.seen[:0]
	for _, fn := range sorted(c) {
		c.handovers.decide(fn)
		busy = busy || fn.Failures.Pausing(now) || fn.shadows.Failures.Pausing(now)
		functions = append(functions, examined(c, now, fn, leading))
	}
	c.lookedAt, c.seen = now, functions
	c.pairs.unwanted()
	c.fleetSize.look(now, leading, functions, nodes)
	return functions, busy
}

// sorted returns the functions by name, as the engine needs them. They seldom change.
func sorted(c *Controller) []*function {
	if c.order == nil {
		byName := func(a, b *function) int { return strings.Compare(a.Name, b.Name) }
		c.order = slices.SortedFunc(maps.Values(c.functions), byName)
	}
	return c.order
}

// carryOut does what was planned for the functions, as far as that still fits. Functions may
// have been removed or deployed again since: upToDate drops what was planned for them.
// Instances may have exited, or have become busy or suspect: the methods of driver pass over
// these. Nobody else starts instances, so no room was taken.
func (c *Controller) carryOut(now time.Time, leading bool, plan scaling.Plan, functions []scaling.Function, nodes []cluster.Node, busy bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var do systems.Driver
	if leading {
		c.driver.now, do = now, &c.driver
	}
	plan = c.driver.upToDate(plan)
	c.driver.stay(plan)
	next := systems.CarryOut(plan, functions, c.options.Tick, busy, do)
	for _, fn := range c.functions {
		c.handovers.decide(fn) // The plan may have stopped the last earlier instances.
	}
	if leading {
		c.driver.raiseAll(nodes)
	}
	c.trials.place(leading, nodes)
	for _, x := range plan.Carried {
		if fn, ok := c.functions[x.Function]; ok {
			fn.carried, fn.capacity = x.Over, x.Rate
		}
	}
	for _, fn := range c.functions {
		if fn.stats.Starting {
			dispatch.Starts(fn.dispatcher, !steady(fn), fn.carried < 1)
		}
	}
	c.display.explain(now, plan, nodes)
	c.display.record(now, nodes, time.Duration(len(c.keeper.Instances()))*recordPause)
	return next
}

// steady reports whether instances serve, none of the function's starts or gets another share, and none of an
// earlier revision holds the room of one that is to start.
func steady(fn *function) bool {
	serves := false
	for _, in := range fn.Instances {
		if in.earlier() {
			return false
		}
		starts := in.State == cluster.Starting && !in.Retiring
		if starts || in.serves() && in.previousConfig != nil || in.away && !in.Parked {
			return false
		}
		serves = serves || in.serves()
	}
	return serves
}

// examined returns a function as the engine sees it: as before if it rests.
func examined(c *Controller, now time.Time, fn *function, leads bool) scaling.Function {
	set := restSettings{fn.Function, fn.replicas, fn.scaledToZero, leads}
	if !fn.rest.until.IsZero() {
		if set == fn.rest.restSettings && fn.rest.lasts(now, fn) {
			return fn.rest.seen
		}
		fn.activity.Still(c.lookedAt) // The rate of new requests counts from then.
	}
	f := c.look(now, fn)
	if fn.rest = (rest{}); len(c.functions) > c.few && rests(fn, &f) {
		set.replicas, set.scaledToZero = fn.replicas, fn.scaledToZero // A request may have changed them.
		fn.rest = rest{f, fn.stats.Arrivals, set, restUntil(now, fn, &f)}
	}
	return f
}

// look returns a function as the engine sees it.
func (c *Controller) look(now time.Time, fn *function) scaling.Function {
	learn(now, fn, c.interference.movable)
	c.revisions.repairParts(fn)
	stats := statsOf(fn)
	rows := fn.meanRows.Read(now, stats.Arrivals, stats.ExtraRows)
	fn.offer()
	f := scaling.Function{
		Name: fn.Name, Revision: fn.Revision, Percentile: fn.Inference.Percentile, Queue: fn.queue(),
		ColdWait: c.options.ColdWait, Weight: fn.Inference.Weight, Waiting: stats.Waiting, Min: int(fn.replicas), Max: fn.Inference.MaxReplicas, ScaleToZero: true,
		Accurate: fn.Inference.Accurate, Tenant: tenantOf(fn),
	}
	fn.setClasses(now, &f, stats, rows)
	fn.planned = 0
	if !fn.Failures.Pausing(now) {
		if f.Configs = fn.candidates(); fn.Inference.Partition == annotation.PartitionLatency {
			f.Configs = fn.quick.of(now, fn, f.Configs, c.nodes)
		} else {
			fn.quick = quickest{}
		}
		if fn.measured() {
			fn.planned = fn.Revision
		}
	}
	if c.options.Eligible != nil {
		f.Nodes, fn.ineligible = c.options.Eligible(fn.Function)
		if fn.refusing = ""; len(f.Nodes) > 0 {
			fn.ineligible, fn.refusing = "", fn.ineligible
		}
	}
	f.Nodes = c.fleetSize.staying(fn.avoid(suited(fn, f.Nodes, c.nodes), c.nodes), c.nodes)
	busy := stats.Waiting > 0
	instances := fn.Sorted()
	f.Instances = slices.Grow(fn.running[:0], len(instances))
	for _, in := range instances {
		r := in.running(now, stats)
		if c.fleetSize.leaves(in) {
			r.Replace()
		}
		if in.serves() {
			busy = busy || r.IdleSince.IsZero()
			fn.Failures.Serves(now, in.ReadyAt)
		}
		f.Instances = append(f.Instances, r)
	}
	fn.running = f.Instances
	c.pairs.look(now, fn, &f)
	fn.setLoad(now, &f, stats, busy, c.options.Cold, c.options.Tick)
	f.Rate, f.Waiting = f.Rate*rows, times(f.Waiting, rows) // Execution times are of rows.
	if awaitsFirst(fn) {
		f.Min = max(1, f.Min)
	}
	addBacklog(c, fn, &f, now, stats, rows)
	fn.load = f.Rate
	c.interference.follow(now, fn, f.Rate, c.nodes)
	fn.steer(now, &f, stats)
	if fn.tuned != nil {
		fn.tune(now, &f, c.nodes)
	}
	if f.Queue == capacity.PerInstance {
		deal(c.options.System, instances, f)
	}
	return f
}

// planned is the instance's config with the largest batch that the objective allows.
func (in *instance) planned() cluster.Config {
	c := in.Config
	c.Batch = in.batch
	return c
}

// running returns an instance as the engine sees it.
func (in *instance) running(now time.Time, stats dispatch.Stats) scaling.Running {
	fn := in.function
	r := scaling.RunningOf(&in.Instance, in.Retiring || in.Suspect || in.successor != "")
	r.Config, r.Largest, r.Exec, r.Loading = in.planned(), in.Config.Batch, in.exec, in.Loading
	r.Paired, r.Fixed = in.Paired && !now.Before(in.aloneUntil), now.Before(in.resizeAfter)
	if p := in.pace(); p != nil {
		r.Mean = p.means.Of(p.times.Profile(), capacity.ShareOf(in.Config), in.batch, in.exec)
	}
	if fn.quick.replaces(in) || in.Revision != fn.Revision || in.useless || in.relief.replaced || !fn.accurate(fn.artefact(in.Artefact.Name)) {
		r.Replace() // Also if its revision is higher: that deployment was undone.
	}
	if r.IdleSince = stats.Instances[in.ID]; in.away {
		r.IdleSince = in.idleSince
	}
	return r
}

// setLoad sets the function's rate from its arrivals. It also sets when the cold-start policy
// parks or retires the instances of an idle function, and when it starts one ahead of time.
func (fn *function) setLoad(now time.Time, f *scaling.Function, stats dispatch.Stats, busy bool, cold coldstart.Policy, tick time.Duration) {
	// The function's own keep-alive overrides the policy's windows. The policy keeps learning.
	if own := fn.Inference.KeepAlive; own > 0 {
		cold = fixedKeepAlive{cold, own}
	}
	var decision coldstart.Decision
	if fn.hasQueue {
		fn.activity.Apart(stats.Patient)
	}
	f.Rate, decision = fn.activity.Look(now, fn.Name, stats.Arrivals, busy, cold, tick)
	fn.unwritten = fn.unwritten || fn.activity.Learned()
	if fn.activity.Arrived() {
		fn.wake()
		f.Min = int(fn.replicas)
	}
	if fn.Inference.ScaleZero && now.Sub(fn.activity.Last()) >= fn.Inference.ZeroDuration {
		f.Min = 0
	}
	f.PreWarmAt, f.RetireAt, f.ParkAt = decision.PreWarmAt, decision.RetireAt, decision.ParkAt
	f.RetireStated = fn.Inference.KeepAlive > 0 || fn.scaledToZero
	if fn.scaledToZero {
		f.PreWarmAt, f.RetireAt = time.Time{}, now
	}
}

// times is the number of rows of some requests, rounded up.
func times(requests int, rows float64) int { return int(math.Ceil(float64(requests) * rows)) }

// addBacklog adds the load of the queue of asynchronous requests to the function's rate. Its requests have as many
// rows as others.
func addBacklog(c *Controller, fn *function, f *scaling.Function, now time.Time, stats dispatch.Stats, rows float64) {
	if c.options.Backlog == nil {
		return
	}
	queued, at := c.options.Backlog(fn.Name)
	f.Patient = times(stats.PatientWaiting, rows)
	f.Rate += rows * fn.backlog.Load(now, scaling.Queued{At: at, Requests: queued, Begun: stats.Patient, Waiting: stats.PatientWaiting, Within: provider.AsyncPatience})
}

// fixedKeepAlive is a cold-start policy with the keep-alive of a deployment.
type fixedKeepAlive struct {
	coldstart.Policy
	keepAlive time.Duration
}

// Windows returns the deployment's keep-alive, whatever the policy has learned.
func (k fixedKeepAlive) Windows(time.Time, string) coldstart.Windows {
	return coldstart.Windows{KeepAlive: k.keepAlive}
}

// wake undoes a scaling to zero: the deployment's minimum counts again.
func (fn *function) wake() {
	if fn.scaledToZero {
		fn.scaledToZero, fn.replicas = false, max(fn.replicas, uint64(fn.Inference.MinReplicas))
	}
}

// awaitsFirst reports whether a deployment whose requests are answered elsewhere has not had an instance yet.
func awaitsFirst(fn *function) bool {
	if fn.Warm && slices.ContainsFunc(fn.Sorted(), (*instance).serves) {
		fn.warmed = fn.Function
	}
	return fn.Warm && fn.warmed != fn.Function
}

// deal gives INFless' batching policy the part of the load for each instance (r_i, §3.2).
func deal(system systems.System, instances []*instance, f scaling.Function) {
	var serving []*instance
	var ranges []capacity.Range
	for _, in := range instances {
		if in.serves() && in.up {
			serving = append(serving, in)
			ranges = append(ranges, system.Range(in.planned(), in.exec, f.SLO))
		}
	}
	systems.Deal(f.Rate, ranges, func(i int) *float64 { return &serving[i].rate }, func(i int) { serving[i].tell() })
}
