package pool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
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
	// Policy is the default batching policy.
	Policy string
	// Instances are those that an earlier provider has left.
	Instances []cluster.Instance
}

// Pools are the pools of one provider. Its methods are safe for concurrent use.
type Pools struct {
	options Options
	// controller runs the pools. left are the pools of which an earlier provider has left instances, by full name.
	controller *control.Controller
	left       map[string]bool

	mu sync.Mutex
	// pools stay after their last member has gone: another one may be on its way.
	pools map[string]*Pool
	// keys has the functions that may share by their full names, whys why the others may not.
	keys, whys map[string]string
}

// New returns pools without members. Call Attach before a function is placed.
func New(o Options) *Pools {
	p := &Pools{options: o, left: map[string]bool{}, pools: map[string]*Pool{}, keys: map[string]string{}, whys: map[string]string{}}
	for i := range o.Instances {
		if in := &o.Instances[i]; Is(in.Function) && in.State != cluster.Exited {
			p.left[in.Function] = true
		}
	}
	return p
}

// Attach sets the controller that runs the pools. Its bundles must be those of [Pools.Bundles], and its backlog that of
// [Pools.Backlog].
func (p *Pools) Attach(c *control.Controller) { p.controller = c }

// Place returns the key of those with whom a deployment may share instances, "" for nobody, and whether it goes into
// their pool now. A function that finds nobody stays alone until another one comes: see [Pools.Placed].
func (p *Pools) Place(ctx context.Context, f *provider.Function) (key string, now bool) {
	why := ""
	if asks(f) {
		artefact, err := p.artefact(ctx, f)
		if err != nil {
			return "", false // The controller refuses the deployment and says why.
		}
		key, why = KeyOf(f, artefact, p.options.Policy)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.whys[f.Name] = why; why == "" {
		delete(p.whys, f.Name)
	}
	if key == "" {
		return "", false
	}
	full, _ := name(key, namespaceOf(f))
	at := p.pools[key]
	return key, at != nil && len(at.names()) > 0 || p.left[full] || p.others(f.Name, key)
}

// others reports whether another function has the key. The lock is held.
func (p *Pools) others(function, key string) bool {
	for name, k := range p.keys {
		if k == key && name != function {
			return true
		}
	}
	return false
}

// Placed notes that a function with the key of Place was deployed, and lists those that are alone although others may share
// with them. pooled reports whether a function is in the pool already.
func (p *Pools) Placed(function, key string, pooled func(name string) bool) (join []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == "" {
		delete(p.keys, function)
		return nil
	}
	p.keys[function] = key
	if !p.others(function, key) {
		return nil
	}
	for name, k := range p.keys {
		if k == key && !pooled(name) {
			join = append(join, name)
		}
	}
	return join
}

// Forget forgets a function that was removed.
func (p *Pools) Forget(function string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, function)
	delete(p.whys, function)
}

// Why says why a function that asks to share instances shares none, "" if it does not ask.
func (p *Pools) Why(function string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why := p.whys[function]; why != "" {
		return "shares no instances: " + why
	}
	if p.keys[function] != "" {
		return "shares no instances yet: no other function serves this model in the same way"
	}
	return ""
}

// At returns the pool with a key, which has no members until one is deployed in it.
func (p *Pools) At(key string) *Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.pools[key]
	if !ok {
		at = &Pool{pools: p, key: key, members: map[string]*member{}, functions: map[string]*provider.Function{}}
		p.pools[key] = at
	}
	return at
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
	hash, err := p.options.Hash(models[0].File)
	if err != nil {
		return a, err
	}
	if a.Content, err = p.content(bundle, models[0].File, hash); err != nil {
		return a, err
	}
	for _, secret := range f.Deployment.Secrets {
		a.Secrets += fmt.Sprintf("%s %s\n", secret, p.options.Secrets.Version(f.Deployment.Namespace, secret))
	}
	return a, nil
}

// largeFile is the size in bytes from which the hash of a bundle's file is remembered.
const largeFile = 64 << 10

// content is a hash of a bundle's files. That of the model is known.
func (p *Pools) content(bundle, model, hash string) (string, error) {
	sum := sha256.New()
	fmt.Fprintf(sum, "model %s images %s\n", hash, filepath.Ext(model))
	if info, err := os.Stat(bundle); err != nil || !info.IsDir() {
		fmt.Fprintln(sum, bundle) // An image: its digest stands for its content.
		return hex.EncodeToString(sum.Sum(nil)), nil
	}
	err := filepath.WalkDir(bundle, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == model || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(bundle, path)
		if info.Size() >= largeFile {
			of, err := p.options.Hash(path)
			fmt.Fprintf(sum, "%q %s\n", rel, of)
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(sum, "%q %x\n", rel, sha256.Sum256(text))
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
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
