package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// Options configure pools.
type Options struct {
	Bundles control.Bundles
	Secrets control.Secrets
	// Hash returns the hash of a file's content, and of the model in it if it is one.
	Hash    func(file string) (string, error)
	Metrics *metrics.Metrics
	Logger  zerolog.Logger
	// Decisions attributes what is decided about a pool to its members; nil for nothing.
	Decisions *decisions.Log
	// Policy is the default batching policy.
	Policy string
	// Instances are those that an earlier provider has left.
	Instances []cluster.Instance
}

// Pools are the pools of one provider. Its methods are safe for concurrent use.
type Pools struct {
	options Options
	// controller runs the pools; runs and tooSlow are what of it a pool needs to follow its members. left are the pools of which an earlier provider has left instances, by full name.
	controller *control.Controller
	runs       runner
	tooSlow    func(ctx context.Context, f *provider.Function) error
	left       map[string]bool

	mu sync.Mutex
	// pools are those with a member, or into which the first one comes.
	pools map[string]*Pool
	// placed has the functions that ask to share by their full names, byKey those that may by key.
	placed map[string]Place
	byKey  map[string]map[string]bool
}

// Place says with whom a function may share instances.
type Place struct {
	// Key is that of those with whom it may, "" for nobody. Now: it goes into their pool at once. A function that finds
	// nobody stays alone until another one comes: see [Pools.Placed].
	Key string
	Now bool
	// asks: the function would share, by default or because it states that (stated). why is why it may not.
	asks, stated bool
	why          string
}

// New returns pools without members. Call Attach before a function is placed.
func New(o Options) *Pools {
	p := &Pools{options: o, left: map[string]bool{}, pools: map[string]*Pool{}, placed: map[string]Place{}, byKey: map[string]map[string]bool{}}
	for i := range o.Instances {
		if in := &o.Instances[i]; Is(in.Function) && in.State != cluster.Exited {
			p.left[in.Function] = true
		}
	}
	return p
}

// Attach sets the controller that runs the pools. Its bundles must be those of [Pools.Bundles], and its backlog that of
// [Pools.Backlog].
func (p *Pools) Attach(c *control.Controller) {
	p.controller, p.runs = c, c
	p.tooSlow = func(ctx context.Context, f *provider.Function) error { return control.Hopeless(ctx, c, f) }
}

// runner runs the functions that stand for pools.
type runner interface {
	Deploy(ctx context.Context, f *provider.Function) (provider.Dispatcher, error)
	Scale(name string, replicas uint64) error
	Describe(name string) (keeper.Description, bool)
}

// lookPause is the time between two looks at the pools, and the first one before what the controller has refused is tried
// again; longestPause is the longest.
const lookPause, longestPause = time.Second, 5 * time.Minute

// Run looks after the pools until ctx ends.
func (p *Pools) Run(ctx context.Context) {
	for backoff.Wait(ctx, lookPause) {
		p.mu.Lock()
		all := slices.Collect(maps.Values(p.pools))
		p.mu.Unlock()
		for _, pool := range all {
			pool.look(ctx)
		}
	}
}

// Place returns where a deployment belongs. It changes nothing.
func (p *Pools) Place(ctx context.Context, f *provider.Function) Place {
	if !asks(f) {
		return Place{}
	}
	artefact, err := p.artefact(ctx, f)
	if err != nil {
		return Place{} // The controller refuses the deployment and says why.
	}
	at := Place{asks: true, stated: f.Inference.Share != ""}
	if at.Key, at.why = KeyOf(f, artefact, p.options.Policy); at.Key == "" {
		return at
	}
	full, _ := name(at.Key, namespaceOf(f))
	p.mu.Lock()
	defer p.mu.Unlock()
	at.Now = p.pools[at.Key] != nil || p.left[full] || p.others(f.Name, at.Key)
	return at
}

// others reports whether another function has the key. The lock is held.
func (p *Pools) others(function, key string) bool {
	n := len(p.byKey[key])
	if p.byKey[key][function] {
		n--
	}
	return n > 0
}

// Placed notes that a function was deployed at a place, and lists those that are alone although others may share
// with them. pooled reports whether a function is in the pool already.
func (p *Pools) Placed(function string, at Place, pooled func(name string) bool) (join []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(function)
	if !at.asks {
		return nil
	}
	p.placed[function] = at
	if at.Key == "" {
		return nil
	}
	if p.byKey[at.Key] == nil {
		p.byKey[at.Key] = map[string]bool{}
	}
	p.byKey[at.Key][function] = true
	if !p.others(function, at.Key) {
		return nil
	}
	for name := range p.byKey[at.Key] {
		if !pooled(name) {
			join = append(join, name)
		}
	}
	return join
}

// Joined notes that a function has no instances of its own any more.
func (p *Pools) Joined(function string) { p.options.Metrics.Function(function).HideInstances() }

// Forget forgets a function that was removed.
func (p *Pools) Forget(function string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(function)
}

// forget is Forget with the lock held.
func (p *Pools) forget(function string) {
	key := p.placed[function].Key
	delete(p.placed, function)
	if delete(p.byKey[key], function); len(p.byKey[key]) == 0 {
		delete(p.byKey, key)
	}
}

// Why says why a function whose deployment asks to share instances shares none, "" if it does not ask: by default most
// functions find nobody, which nobody needs to be told.
func (p *Pools) Why(function string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.placed[function]
	switch {
	case !at.stated:
		return ""
	case at.Key == "":
		return "shares no instances: " + at.why
	}
	return "shares no instances yet: no other function serves this model in the same way"
}

// At returns the pool with a key. One without members knows no function.
func (p *Pools) At(key string) *Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.pools[key]; at != nil {
		return at
	}
	return newPool(p, key)
}

// Deploy adds a member to the pool with a key, or changes it.
func (p *Pools) Deploy(ctx context.Context, key string, f *provider.Function) (provider.Dispatcher, error) {
	for {
		p.mu.Lock()
		at := p.pools[key]
		if at == nil {
			at = newPool(p, key)
			p.pools[key] = at
		}
		p.mu.Unlock()
		d, err := at.deploy(ctx, f)
		if !errors.Is(err, errEnded) {
			return d, err
		}
	}
}

// takeOver notes that a pool of an earlier provider has no instances of then any more.
func (p *Pools) takeOver(full string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, full)
}

// end forgets a pool without members.
func (p *Pools) end(pool *Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pools[pool.key] == pool {
		p.options.Decisions.Share(pool.shared, nil)
		delete(p.pools, pool.key)
	}
}

// artefact identifies what a function's instances load.
func (p *Pools) artefact(ctx context.Context, f *provider.Function) (a Artefact, err error) {
	bundle, models, err := p.options.Bundles.Models(ctx, f)
	if err != nil {
		return a, err
	}
	if a.Models = len(models); a.Models != 1 || models[0].Name != cluster.Whole || models[0].Plan != nil {
		a.Models = max(2, a.Models)
		return a, nil
	}
	a.program = filepath.Ext(models[0].File) != ".onnx"
	hash, err := p.options.Hash(models[0].File)
	if err != nil {
		return a, err
	}
	if a.Content, a.apart, err = p.content(bundle, models[0].File, hash); err != nil {
		return a, err
	}
	for _, secret := range f.Deployment.Secrets {
		a.Secrets += fmt.Sprintf("%s %s\n", secret, p.options.Secrets.Version(f.Deployment.Namespace, secret))
	}
	return a, nil
}

// Restoring returns what the controller of the pools is told of functions that are still to be deployed. A pool's members
// may be among any of them.
func (p *Pools) Restoring(missing func(function string) bool) func(function string) bool {
	return func(function string) bool {
		if Is(function) {
			return missing("")
		}
		return missing(function)
	}
}

// Backlog returns the backlog of a function or a pool: [control.Options.Backlog]. of is that of a function.
func (p *Pools) Backlog(of func(function string) (int, time.Time)) func(string) (int, time.Time) {
	if of == nil {
		return nil
	}
	return func(function string) (n int, at time.Time) {
		if !Is(function) {
			return of(function)
		}
		p.mu.Lock()
		pool := p.pools[keyIn(function)]
		p.mu.Unlock()
		if pool == nil {
			return 0, time.Time{}
		}
		for _, name := range pool.names() {
			k, seen := of(name)
			if n += k; seen.After(at) {
				at = seen
			}
		}
		return n, at
	}
}

// Bundles returns the bundles for the controller of the pools: a pool has the models of one of its members.
func (p *Pools) Bundles() control.Bundles { return bundles{p} }

type bundles struct{ *Pools }

// Models implements [control.Bundles].
func (b bundles) Models(ctx context.Context, f *provider.Function) (string, []control.Model, error) {
	if !Is(f.Name) {
		return b.options.Bundles.Models(ctx, f)
	}
	like, err := b.At(keyIn(f.Name)).like(f)
	if err != nil {
		return "", nil, err
	}
	return b.options.Bundles.Models(ctx, like)
}

// keyIn is the key in a pool's full name.
func keyIn(full string) string {
	service, _, _ := strings.Cut(full, ".")
	return strings.TrimPrefix(service, prefix)
}
