package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// Pool is one function of the controller that answers for its members. For these it is a controller: its methods take
// the full names of members.
type Pool struct {
	pools *Pools
	key   string

	// changing is held while members come and go. refused is how often in a row the controller has refused what they
	// want of the pool, and retryAt when it is asked again.
	changing sync.Mutex
	refused  int
	retryAt  time.Time
	// The rest is guarded by mu. functions are the deployments of members, those that come included.
	mu        sync.Mutex
	members   map[string]*member
	functions map[string]*provider.Function
	// sorted has their names. It is replaced and not changed. shared is the pool's full name once it has had a function.
	sorted []string
	shared string
	// hopeless has why the model is too slow for members, by name.
	hopeless map[string]string
	// deployed is what the controller has, nil if it has nothing.
	deployed *provider.Function
	// to takes the pool's requests.
	to provider.PatientDispatcher
	// ended: its last member has gone, and another pool may have the key.
	ended bool
	// use is that of all members.
	use use
}

// errEnded is the error of a pool whose last member has gone meanwhile.
var errEnded = errors.New("the pool has ended")

var _ provider.SpareController = (*Pool)(nil)

func newPool(p *Pools, key string) *Pool {
	return &Pool{pools: p, key: key, members: map[string]*member{}, functions: map[string]*provider.Function{}}
}

// deploy adds a member, or changes it. The error is errEnded if the pool has ended.
func (p *Pool) deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error) {
	p.changing.Lock()
	defer p.changing.Unlock()
	if p.ended {
		return nil, errEnded
	}
	err := control.Check(ctx, p.pools.controller, f) // The pool's deployment cannot tell whose fault it is.
	if err == nil {
		p.mu.Lock()
		before := p.functions[f.Name]
		p.setFunction(f.Name, f)
		p.mu.Unlock()
		if err = p.redeploy(ctx); err != nil {
			p.mu.Lock()
			p.setFunction(f.Name, before)
			p.mu.Unlock()
		}
	}
	if err != nil {
		full, _ := name(p.key, namespaceOf(f))
		p.endIfEmpty()
		return nil, owned(err, full, f)
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
		m = &member{metrics: p.pools.options.Metrics.Function(f.Name), pool: p.deployed.Name, to: p.to, all: &p.use}
		m.owner.Name, m.owner.Queued = f.Deployment.Service, m.metrics.ObserveQueue
		m.owner.Dropped = func(reason string) { m.metrics.AddDrop(metrics.Reason(reason)) }
		p.members[f.Name] = m
	}
	m.function.Store(f)
	p.tellHopeless()
	return m, nil
}

// setFunction sets the deployment of a member, nil for none. The lock is held.
func (p *Pool) setFunction(member string, f *provider.Function) {
	if p.functions[member] = f; f == nil {
		delete(p.functions, member)
	}
	p.sorted = slices.Sorted(maps.Keys(p.functions))
	if f != nil {
		p.shared, _ = name(p.key, namespaceOf(f))
	}
	if len(p.sorted) > 0 { // What is decided about a pool that ends is about those that it had.
		p.pools.options.Decisions.Share(p.shared, p.sorted)
	}
}

// endIfEmpty ends the pool if it has no members. changing is held.
func (p *Pool) endIfEmpty() {
	p.mu.Lock()
	empty := len(p.functions) == 0
	p.mu.Unlock()
	if empty {
		p.ended = true
		p.pools.end(p)
	}
}

// redeploy deploys the pool as its members want it now, unless it is like that. changing is held.
func (p *Pool) redeploy(ctx context.Context) error {
	p.mu.Lock()
	members := slices.Collect(maps.Values(p.functions))
	p.mu.Unlock()
	hopeless := judge(members, func(f *provider.Function) error { return p.pools.tooSlow(ctx, f) })
	p.mu.Lock()
	next, before := together(p.key, p.functions, hopeless), p.deployed
	p.mu.Unlock()
	var d provider.Dispatcher
	if !same(before, next) {
		var err error
		if d, err = p.pools.runs.Deploy(ctx, next); err != nil {
			p.refused++
			p.retryAt = time.Now().Add(backoff.Pause(p.refused, lookPause, longestPause))
			return err
		}
	}
	p.refused = 0
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hopeless = hopeless
	p.tellHopeless()
	if d != nil {
		there := *next
		there.Warm = false
		p.deployed, p.to = &there, d.(provider.PatientDispatcher)
	}
	return nil
}

// like returns the member whose model a deployment of the pool has.
func (p *Pool) like(f *provider.Function) (*provider.Function, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.sorted {
		if m := p.functions[name]; m.Deployment.Image == f.Deployment.Image {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", f.Name, keeper.ErrAbsent)
}

// names lists the full names of the members. The caller must not change the list.
func (p *Pool) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sorted
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
		now := time.Now()
		p.use.remove(now, m.use.lately(now))
	}
	delete(p.members, name)
	p.setFunction(name, nil)
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
	p.pools.takeOver(deployed.Name)
	defer p.endIfEmpty()
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
	p.mu.Unlock()
	if err := p.pools.runs.Scale(next.Name, most); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deployed = &next
	return nil
}

// Restoring implements [provider.Controller]. The controller of the pool is told of all functions at once.
func (p *Pool) Restoring(func(string) bool) {}

// Status implements [provider.Controller].
func (p *Pool) Status(name string) (provider.Status, bool) {
	m := p.member(name)
	if m == nil {
		return provider.Status{}, false
	}
	s, ok := p.pools.controller.Status(m.pool)
	if !ok {
		return s, false
	}
	p.mu.Lock()
	f, names, hopeless := p.functions[name], p.sorted, p.hopeless[name]
	p.mu.Unlock()
	if f == nil {
		return provider.Status{}, false
	}
	s.Learnt = f.Learnt
	s.Problem, s.Progress = ownName(s.Problem, m.pool, f), ownName(s.Progress, m.pool, f)
	if hopeless != "" {
		s.Problem, s.Slight, s.AvailableReplicas = hopeless, false, 0
	}
	own := m.part(time.Now(), len(names))
	s.Usage.CPU, s.Usage.Memory = int(own*float64(s.Usage.CPU)), int64(own*float64(s.Usage.Memory))
	s.Sharing = sharing(m.pool, name, names, own)
	return s, true
}

// maxNamed bounds the neighbours that a status names.
const maxNamed = 8

// sharing says with whom a member of a pool shares, and its part of the use.
func sharing(pool, name string, members []string, own float64) string {
	if len(members) < 2 {
		return "alone in " + pool
	}
	var others []string
	for _, n := range members {
		if n != name && len(others) < maxNamed {
			others = append(others, n)
		}
	}
	more := ""
	if n := len(members) - 1 - len(others); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("shares the instances of %s with %s%s; %.0f %% of their use is its own", pool, strings.Join(others, ", "), more, 100*own)
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
	own := m.part(time.Now(), len(p.names()))
	w.Waiting = int(m.owner.Waiting.Load())
	if w.Revision > 0 {
		w.Revision = m.function.Load().Revision
	}
	w.Hopeless = w.Hopeless || m.hopeless.Load() != nil
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
	w, err := control.Plan(ctx, p.pools.controller, p.full(), slo, rate)
	if m := p.member(name); m != nil {
		f := m.function.Load()
		w.Why, err = ownName(w.Why, m.pool, f), owned(err, m.pool, f)
	}
	return w, err
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
