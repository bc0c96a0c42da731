package pool

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// Pool is one function of the controller that answers for its members. For these it is a controller: its methods take
// the full names of members.
type Pool struct {
	pools *Pools
	key   string

	// changing is held while members come and go.
	changing sync.Mutex
	// The rest is guarded by mu. functions are the deployments of members, those that come included.
	mu        sync.Mutex
	members   map[string]*member
	functions map[string]*provider.Function
	// deployed is what the controller has, nil if it has nothing.
	deployed *provider.Function
	// to takes the pool's requests.
	to provider.PatientDispatcher
}

var _ provider.SpareController = (*Pool)(nil)

// Deploy adds a member, or changes it.
func (p *Pool) Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	p.changing.Lock()
	defer p.changing.Unlock()
	p.mu.Lock()
	before := p.functions[f.Name]
	p.functions[f.Name] = f
	p.mu.Unlock()
	if err := p.redeploy(ctx); err != nil {
		p.mu.Lock()
		if p.functions[f.Name] = before; before == nil {
			delete(p.functions, f.Name)
		}
		p.mu.Unlock()
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Warm { // A later change of the pool starts no instance for it.
		there := *f
		there.Warm, f = false, &there
		p.functions[f.Name] = f
	}
	m := p.members[f.Name]
	if m == nil {
		m = &member{metrics: p.pools.options.Metrics.Function(f.Name), to: p.to}
		m.owner.Name, m.owner.Queued = f.Deployment.Service, m.metrics.ObserveQueue
		p.members[f.Name] = m
	}
	m.function.Store(f)
	return m, nil
}

// redeploy deploys the pool as its members want it now, unless it is like that. changing is held.
func (p *Pool) redeploy(ctx context.Context) error {
	p.mu.Lock()
	next, before := together(p.key, p.functions), p.deployed
	p.mu.Unlock()
	if same(before, next) {
		return nil
	}
	d, err := p.pools.controller.Deploy(ctx, next)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deployed, p.to = next, d.(provider.PatientDispatcher)
	return nil
}

// like returns the member whose model a deployment of the pool has.
func (p *Pool) like(f *provider.Function) (*provider.Function, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.functions)) {
		if m := p.functions[name]; m.Deployment.Image == f.Deployment.Image {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", f.Name, keeper.ErrAbsent)
}

// names lists the full names of the members.
func (p *Pool) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.functions))
}

// full is the pool's full name, "" if it has no members.
func (p *Pool) full() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deployed == nil {
		return ""
	}
	return p.deployed.Name
}

// Logs is the name by which the logs of a member's instances are kept. Members of other namespaces do not see
// each other's lines.
func (p *Pool) Logs(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deployed == nil || p.members[name] == nil || p.deployed.Inference.Share == annotation.ShareAll {
		return name
	}
	return p.deployed.Name
}

// member finds a member, nil if it is none.
func (p *Pool) member(name string) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members[name]
}

// Release removes a member. The requests that it has are answered, unless it was the last one: then the pool ends.
func (p *Pool) Release(ctx context.Context, name string) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	p.mu.Lock()
	if m := p.members[name]; m != nil {
		m.gone.Store(true)
	}
	delete(p.members, name)
	delete(p.functions, name)
	deployed, left := p.deployed, len(p.functions)
	if left == 0 {
		p.deployed, p.to = nil, nil
	}
	p.mu.Unlock()
	switch {
	case deployed == nil:
		return nil
	case left > 0:
		return p.redeploy(ctx)
	}
	p.pools.mu.Lock()
	delete(p.pools.left, deployed.Name)
	p.pools.mu.Unlock()
	return p.pools.controller.Remove(ctx, deployed.Name)
}

// Remove is Release for a function that nobody has any more: its metrics go, too.
func (p *Pool) Remove(ctx context.Context, name string) error {
	if err := p.Release(ctx, name); err != nil {
		return err
	}
	p.pools.options.Metrics.Remove(name)
	return nil
}

// Scale sets the number of instances that a member wants without load. The pool has the largest of its members'. It
// stops its instances only once all members were scaled to zero since their last request.
func (p *Pool) Scale(name string, replicas uint64) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	p.mu.Lock()
	f, ok := p.functions[name]
	if !ok || p.deployed == nil {
		p.mu.Unlock()
		return fmt.Errorf("%s: %w", name, keeper.ErrAbsent)
	}
	scaled := *f
	scaled.Replicas = replicas
	p.functions[name] = &scaled
	if m := p.members[name]; m != nil {
		m.zero.Store(replicas == 0)
	}
	most, resting := uint64(0), true
	for n, f := range p.functions {
		most = max(most, f.Replicas)
		m := p.members[n]
		resting = resting && m != nil && m.zero.Load()
	}
	if most == 0 && !resting {
		p.mu.Unlock()
		return p.redeploy(context.Background())
	}
	next := *p.deployed
	next.Replicas = most
	p.deployed = &next
	p.mu.Unlock()
	return p.pools.controller.Scale(next.Name, most)
}

// Restoring implements [provider.Controller]. The controller of the pool is told of all functions at once.
func (p *Pool) Restoring(func(string) bool) {}

// Status implements [provider.Controller].
func (p *Pool) Status(name string) (provider.Status, bool) {
	if p.member(name) == nil {
		return provider.Status{}, false
	}
	s, ok := p.pools.controller.Status(p.full())
	if !ok {
		return s, false
	}
	own := p.part(name)
	p.mu.Lock()
	if f := p.functions[name]; f != nil {
		s.Learnt = f.Learnt
	}
	p.mu.Unlock()
	s.Usage.CPU, s.Usage.Memory = int(own*float64(s.Usage.CPU)), int64(own*float64(s.Usage.Memory))
	s.Sharing = p.sharing(name, own)
	return s, true
}

// maxNamed bounds the neighbours that a status names.
const maxNamed = 8

// sharing says with whom a member shares, and its part of the use.
func (p *Pool) sharing(name string, own float64) string {
	others := slices.DeleteFunc(p.names(), func(n string) bool { return n == name })
	if len(others) == 0 {
		return "alone in " + p.full()
	}
	more := ""
	if n := len(others) - maxNamed; n > 0 {
		others, more = others[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("shares the instances of %s with %s%s; %.0f %% of their use is its own", p.full(), strings.Join(others, ", "), more, 100*own)
}

// part is a member's part of what the pool uses.
func (p *Pool) part(name string) float64 {
	p.mu.Lock()
	members := maps.Clone(p.members)
	p.mu.Unlock()
	now, own, all := time.Now(), 0.0, 0.0
	for n, m := range members {
		used := m.use.lately(now)
		all += used
		if n == name {
			own = used
		}
	}
	return part(own, all, len(members))
}

// Describe returns the state of the pool for a member.
func (p *Pool) Describe(name string) (keeper.Description, bool) {
	if p.member(name) == nil {
		return keeper.Description{}, false
	}
	return p.pools.controller.Describe(p.full())
}

// Watch implements [provider.WatchedController]. What the instances hold is divided by use.
func (p *Pool) Watch(name string) (provider.Watched, bool) {
	m := p.member(name)
	if m == nil {
		return provider.Watched{}, false
	}
	w, ok := control.Watch(p.pools.controller, p.full())
	if !ok {
		return w, false
	}
	w.Status, ok = p.Status(name)
	own := p.part(name)
	w.Waiting = int(m.owner.Waiting.Load())
	if w.Revision > 0 {
		w.Revision = m.function.Load().Revision
	}
	for i := range w.Instances {
		h := &w.Instances[i].Holds
		h.CPU, h.Memory, h.GPU = int(own*float64(h.CPU)), int64(own*float64(h.Memory)), int(own*float64(h.GPU))
	}
	return w, ok
}

// Variants implements [provider.VariantController].
func (p *Pool) Variants(string) ([]provider.Variant, bool) {
	return p.pools.controller.Variants(p.full())
}

// Plan implements [provider.PlanningController].
func (p *Pool) Plan(ctx context.Context, name string, slo time.Duration, rate float64) (provider.WhatIf, error) {
	return control.Plan(ctx, p.pools.controller, p.full(), slo, rate)
}

// Owns implements [provider.SpareController].
func (p *Pool) Owns(string) bool { return true }

// Left implements [provider.SpareController].
func (p *Pool) Left(string) (spare.State, bool) { return control.Left(p.pools.controller, p.full()) }

// InvokeSpare implements [provider.SpareController].
func (p *Pool) InvokeSpare(name string, req *frame.Request) (*frame.Response, error) {
	m := p.member(name)
	if m == nil {
		return nil, spare.ErrOccupied
	}
	return m.invoke(req, func() (*frame.Response, error) {
		return control.InvokeSpare(p.pools.controller, p.full(), req)
	})
}

// Run implements the router's part. The controller runs the pool.
func (p *Pool) Run(context.Context) {}

// Close implements the router's part.
func (p *Pool) Close(context.Context) error { return nil }
