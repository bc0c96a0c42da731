package control

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling"
)

// scale asks the engine what to do and does it.
func (c *Controller) scale(now time.Time) {
	nodes, err := c.options.Backend.Nodes(c.ctx)
	if err != nil {
		if c.ctx.Err() == nil {
			c.options.Logger.Error().Err(err).Msg("list nodes")
		}
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes = c.room(nodes)
	functions := make([]scaling.Function, 0, len(c.functions))
	for _, fn := range c.functions {
		functions = append(functions, c.look(now, fn))
	}
	plan := c.options.Engine.Scale(now, functions, nodes)
	for _, s := range plan.Stop {
		if in, ok := c.instances[s.ID]; ok {
			c.retire(in, string(s.Why))
		}
	}
	for _, s := range plan.Start {
		if fn, ok := c.functions[s.Function]; ok {
			c.start(fn, s)
		}
	}
	c.explain(plan)
	c.record(nodes)
}

// room is what is free on the nodes when everything that was begun is counted,
// also what the backend has not heard of yet.
func (c *Controller) room(nodes []cluster.Node) []cluster.Node {
	for i := range nodes {
		nodes[i].Free = nodes[i].Total
		for _, in := range c.instances {
			if in.Node == nodes[i].Name {
				nodes[i].Free = nodes[i].Free.Sub(in.Config.Resources)
			}
		}
		for _, in := range c.known {
			if in.Node == nodes[i].Name {
				nodes[i].Free = nodes[i].Free.Sub(in.Config.Resources)
			}
		}
	}
	return nodes
}

// look is a function as the engine sees it.
func (c *Controller) look(now time.Time, fn *function) scaling.Function {
	stats := fn.dispatcher.Stats()
	f := scaling.Function{
		Name: fn.Name, Revision: fn.Revision, SLO: fn.Inference.SLO, Queue: scaling.LateBound,
		Rate: fn.meter.read(now, stats.Arrivals), Waiting: stats.Waiting,
		Min: int(fn.replicas), Max: fn.Inference.MaxReplicas, ScaleToZero: true,
	}
	if c.policyName(fn.Function) == batching.InFlessName {
		f.Queue = scaling.PerInstance
	}
	if !now.Before(fn.notBefore) {
		f.Configs = fn.candidates
	}
	busy := stats.Waiting > 0
	for _, in := range fn.sorted() {
		r := scaling.Running{ID: in.ID, Node: in.Node, Config: in.Config, Exec: in.exec, Revision: in.Revision, State: in.State}
		if in.retiring {
			r.State = cluster.Stopping
		}
		r.IdleSince = stats.Instances[in.ID]
		busy = busy || in.State == cluster.Ready && !in.retiring && r.IdleSince.IsZero()
		f.Instances = append(f.Instances, r)
	}
	c.age(now, fn, &f, stats, busy)
	if f.Queue == scaling.PerInstance {
		c.deal(fn, f)
	}
	return f
}

// age lets the cold-start policy say when an idle function loses its instances.
func (c *Controller) age(now time.Time, fn *function, f *scaling.Function, stats dispatch.Stats, busy bool) {
	if stats.Arrivals != fn.arrivals {
		if idle := now.Sub(fn.lastActive); idle > c.options.Tick*2 {
			c.options.Cold.Observe(now, fn.Name, idle)
		}
		fn.scaledToZero = false
		fn.arrivals = stats.Arrivals
		busy = true
	}
	if busy {
		fn.lastActive = now
	}
	windows := c.options.Cold.Windows(now, fn.Name)
	if own := fn.Inference.KeepAlive; own > 0 {
		windows = coldstart.Windows{KeepAlive: own}
	}
	decision := coldstart.Decide(fn.lastActive, now, windows)
	f.PreWarmAt, f.RetireAt = decision.PreWarmAt, decision.RetireAt
	if fn.scaledToZero {
		f.PreWarmAt, f.RetireAt = time.Time{}, now
	}
}

// deal tells INFless' policy how much of the load each instance is to get.
func (c *Controller) deal(fn *function, f scaling.Function) {
	var ready []*instance
	var ranges []scaling.Range
	for _, in := range fn.sorted() {
		if in.State == cluster.Ready && !in.retiring {
			ready = append(ready, in)
			ranges = append(ranges, scaling.Bounds(in.Config.Batch, in.exec, f.SLO, scaling.Exact))
		}
	}
	for i, rate := range scaling.Rates(f.Rate, ranges) {
		fn.dispatcher.Up(c.describe(ready[i], rate), ready[i].Network, ready[i].Address)
	}
}

// explain keeps, per function, why it cannot have what it needs, and logs it
// when it changes.
func (c *Controller) explain(plan scaling.Plan) {
	unplaced := map[string]string{}
	for _, u := range plan.Unplaced {
		unplaced[u.Function] = u.Explanation
	}
	for name, fn := range c.functions {
		why := unplaced[name]
		if why == fn.unplaced || fn.profile == nil || len(fn.candidates) > 0 && time.Now().Before(fn.notBefore) {
			continue
		}
		fn.unplaced = why
		if why != "" {
			c.options.Logger.Warn().Str("function", name).Str("why", why).Msg("the function cannot have all the instances that it needs")
		}
	}
}

// record shows what runs in the metrics.
func (c *Controller) record(nodes []cluster.Node) {
	for _, n := range nodes {
		c.options.Metrics.SetNode(n)
	}
	for _, fn := range c.functions {
		counts := map[string]int{}
		for config := range fn.shown {
			counts[config] = 0
		}
		var held cluster.Resources
		for _, in := range fn.instances {
			held = held.Add(in.Config.Resources)
			if in.State == cluster.Ready && !in.retiring {
				counts[in.Config.String()]++
			}
		}
		fn.metrics.SetAllocated(held)
		for config, n := range counts {
			fn.metrics.SetInstances(config, n)
			if n == 0 {
				delete(counts, config)
			}
		}
		fn.shown = counts
	}
}
