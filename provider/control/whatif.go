package control

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// whatIfPasses is how many plans one question takes at most: a plan may leave the rest of a load to the next one.
const whatIfPasses = 8

// Plan answers as [provider.PlanningController] does: it asks a new engine for the function without its
// instances, on copies of the nodes on which what these hold is free. The engine plans without the lock.
func Plan(ctx context.Context, c *Controller, name string, slo time.Duration, rate float64) (provider.WhatIf, error) {
	f, nodes, err := question(c, name, slo, rate)
	if err != nil {
		return provider.WhatIf{}, err
	}
	out := provider.WhatIf{Headroom: c.options.System.Settings().Headroom}
	if len(f.Configs) == 0 {
		out.Lack, out.Why = provider.LackSpeed, tooSlowFor(c, name, slo)
		return out, nil
	}
	engine, now := c.options.System.Scaler(), time.Now()
	for range whatIfPasses {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		plan := engine.Scale(now, []scaling.Function{f}, nodes)
		now = now.Add(time.Second)
		out.Lack, out.Why = "", ""
		for _, u := range plan.Unplaced {
			out.Lack, out.Why = lackOf(u.Reason), u.Explanation
		}
		for _, x := range plan.Carried {
			out.Carries = x.Rate
		}
		started := false
		for _, s := range plan.Start {
			if s.Role == cluster.Body {
				f.Instances, started = append(f.Instances, takes(nodes, s, len(f.Instances))), true
			}
		}
		if !started && len(plan.Resize) == 0 {
			break
		}
		for _, r := range plan.Resize {
			resized(nodes, f.Instances, r)
		}
	}
	for _, r := range f.Instances {
		in := cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: r.ID, Function: name, Node: r.Node, Config: r.Config}}
		in.Artefact.Name = r.Artefact
		x := provider.WatchedInstance{Instance: in, Holds: r.Config.Resources, Predicted: r.Exec}
		x.Carries = capacity.BoundsOf(r.Config, r.Exec, slo, capacity.Exact).Up
		out.Instances = append(out.Instances, x)
	}
	if out.Carries == 0 {
		for _, x := range out.Instances {
			out.Carries += x.Carries
		}
	}
	return out, nil
}

// question returns a function without instances, with an objective and a load, and the nodes without what its
// instances hold, for an engine of its own.
func question(c *Controller, name string, slo time.Duration, rate float64) (f scaling.Function, nodes []cluster.Node, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return f, nil, web.Refuse(http.StatusNotFound, "there is no function %s", name)
	}
	if !fn.measured() {
		return f, nil, web.Unavailable(time.Second, "there is no plan for function %s yet: %s", name,
			cmp.Or(fn.problem(), c.display.progress(fn)))
	}
	asked := *fn.Function
	asked.Inference.SLO = slo
	f = scaling.Function{
		Name: name, Revision: 1, SLO: c.rules.Planned(&asked), Percentile: fn.Inference.Percentile, Queue: fn.queue(), ColdWait: c.options.ColdWait,
		Weight: fn.Inference.Weight, Rate: rate, Min: max(1, fn.Inference.MinReplicas), Max: fn.Inference.MaxReplicas, Accurate: fn.Inference.Accurate,
		Tenant: tenantOf(fn),
	}
	for _, a := range fn.artefacts {
		if !fn.accurate(a) {
			continue
		}
		b := *a // join changes its artefact.
		if plan := b.join(&asked, &c.rules, fn.types); plan.Refuse == nil && plan.Slow == "" {
			f.Configs = append(f.Configs, b.named(b.lead.means.Candidates(b.lead.times.Profile(), plan.Candidates))...)
		}
	}
	if c.options.Eligible != nil {
		f.Nodes, _ = c.options.Eligible(fn.Function)
	}
	f.Nodes = suited(fn, f.Nodes, c.nodes)
	nodes = slices.Clone(c.nodes)
	for i := range nodes {
		nodes[i].Mapped = slices.Clone(nodes[i].Mapped)
	}
	freeOn(nodes, fn.Sorted(), fn.shadows.Sorted())
	return f, nodes, nil
}

// tooSlowFor says that a function's model cannot keep an objective.
func tooSlowFor(c *Controller, name string, slo time.Duration) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	why := "no config meets the objective of " + slo.String()
	if fn, ok := c.functions[name]; ok {
		if l := least(fn); l > 0 {
			why += ": the shortest that the model can keep is " + l.Round(time.Millisecond/10).String()
		}
	}
	return why
}

// takes books a start on copies of nodes, and returns the instance as the engine sees it at its next plan.
func takes(nodes []cluster.Node, s scaling.Start, number int) scaling.Running {
	in := cluster.Instance{
		InstanceSpec: cluster.InstanceSpec{
			ID: cluster.InstanceID("plan-" + strconv.Itoa(1000+number)), Function: s.Function, Revision: s.Revision, Node: s.Node, Nodes: s.Nodes, Config: s.Config,
		},
		State: cluster.Ready,
	}
	in.Artefact.Name = s.Artefact
	if s.Device != "" {
		in.Devices = []string{s.Device}
	}
	for node, part := range cluster.Over(s.Node, s.Nodes, s.Config.Resources) {
		if i := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.Name == node }); i >= 0 {
			nodes[i].Take(&in.InstanceSpec, part)
		}
	}
	r := scaling.RunningOf(&in, false)
	r.Exec, r.Mean = s.Exec, s.Mean
	return r
}

// resized changes an instance of a plan, and books that.
func resized(nodes []cluster.Node, instances []scaling.Running, r scaling.Resize) {
	for i := range instances {
		in := &instances[i]
		if in.ID != r.ID {
			continue
		}
		more := cluster.Resources{CPU: r.Config.CPU - in.Config.CPU}
		for node, part := range cluster.Over(in.Node, in.Nodes, more) {
			if n := slices.IndexFunc(nodes, func(n cluster.Node) bool { return n.Name == node }); n >= 0 {
				nodes[n].Change(part, in.Device)
			}
		}
		in.Config, in.Exec, in.Mean = r.Config, r.Exec, r.Mean
	}
}
