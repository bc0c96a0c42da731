package router

import (
	"context"
	"net/http"
	"time"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/web"
)

var (
	_ provider.WatchedController  = (*Controller)(nil)
	_ provider.PlanningController = (*Controller)(nil)
	_ provider.WatchedController  = (*Shared)(nil)
	_ provider.PlanningController = (*Shared)(nil)
)

// Watch implements [provider.WatchedController].
func (m models) Watch(name string) (provider.Watched, bool) { return control.Watch(m.Controller, name) }

// Plan implements [provider.PlanningController].
func (m models) Plan(ctx context.Context, name string, slo time.Duration, rate float64) (provider.WhatIf, error) {
	return control.Plan(ctx, m.Controller, name, slo, rate)
}

// Watch implements [provider.WatchedController].
func (o ordinary) Watch(name string) (provider.Watched, bool) {
	status, ok := o.Status(name)
	d, known := o.Processes.Describe(name)
	if !ok || !known {
		return provider.Watched{}, false
	}
	w := provider.Watched{Status: status, Revision: d.Revision, Waiting: d.Waiting, Hopeless: d.Crash != "" && d.Ready == 0}
	if d.Crash == "" && d.Unplaced != "" {
		w.Lack = provider.LackRoom
	}
	for _, in := range d.Instances {
		in.Config.Batch = 1
		w.Instances = append(w.Instances, provider.WatchedInstance{Instance: in, Holds: in.Config.Resources})
	}
	return w, true
}

// Watch implements [provider.WatchedController].
func (c *Controller) Watch(name string) (provider.Watched, bool) {
	w, ok := c.in(name).(provider.WatchedController)
	if !ok {
		return provider.Watched{}, false
	}
	return w.Watch(name)
}

// Plan implements [provider.PlanningController].
func (c *Controller) Plan(ctx context.Context, name string, slo time.Duration, rate float64) (provider.WhatIf, error) {
	p, ok := c.in(name).(provider.PlanningController)
	if !ok {
		return provider.WhatIf{}, noObjective(name)
	}
	return p.Plan(ctx, name, slo, rate)
}

// Watch implements [provider.WatchedController].
func (c *Shared) Watch(name string) (provider.Watched, bool) {
	w, ok := c.SharedProvider.(provider.WatchedController)
	if !ok {
		return provider.Watched{}, false
	}
	return w.Watch(name)
}

// Plan implements [provider.PlanningController].
func (c *Shared) Plan(ctx context.Context, name string, slo time.Duration, rate float64) (provider.WhatIf, error) {
	p, ok := c.SharedProvider.(provider.PlanningController)
	if !ok {
		return provider.WhatIf{}, noObjective(name)
	}
	return p.Plan(ctx, name, slo, rate)
}

func noObjective(name string) error {
	return web.Refuse(http.StatusBadRequest, "function %s has no objective (com.openfaas.slo.latency), so there is no plan for it", name)
}
