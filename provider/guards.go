package provider

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// accessPause is the time between two looks at the secrets that say who may call functions, and
	// readPause the time between reading two of them.
	accessPause = 5 * time.Second
	readPause   = 50 * time.Millisecond
	// maxKeysFile is the maximum size in bytes of the file of Options.AccessKeys.
	maxKeysFile = 1 << 20
)

// limiter returns the limiter for a rate of a function, nil for none. It is before, if that has this rate; for an arriving
// function without one it is that of the requests that are queued meanwhile. So their callers go on with what is left of
// their rates. Otherwise it is new.
func (a *arrivals) limiter(name string, before *access.Limiter, r access.Rate) *access.Limiter {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pending[name]
	if before == nil && p != nil {
		before = p.limiter
	}
	switch {
	case r.Requests == 0:
		before = nil
	case before == nil || before.Rate() != r:
		before = access.NewLimiter(r)
	}
	if p != nil {
		p.limiter = before
	}
	return before
}

// limiter returns a function's limiter, nil for none. d may be nil.
func (d *deployed) limiter() *access.Limiter {
	if d == nil {
		return nil
	}
	if p := d.policy.Load(); p != nil {
		return p.limiter
	}
	return nil
}

// put replaces a function's policy, if it changes. usual is the secret that the function's namespace
// names, "" for none.
func (c *callers) put(d *deployed, l *access.Limiter, usual string) {
	g, old := c.guardOf(c.sourceOf(d.Deployment.Namespace, cmp.Or(d.Inference.Access, usual))), d.policy.Load()
	switch {
	case g == nil && l == nil:
		d.policy.Store(nil)
	case old == nil || old.guard != g || old.limiter != l:
		names := []string{d.Name}
		if d.Deployment.Namespace == DefaultNamespace {
			names = append(names, d.Deployment.Service)
		}
		d.policy.Store(&policy{names, g, l})
	}
}

// sourceOf returns where the keys come from for a secret of a namespace, "" for none; false if anybody
// may call.
func (c *callers) sourceOf(namespace, secret string) (source, bool) {
	if secret != "" {
		return source{namespace, secret}, true
	}
	return source{}, c.file != ""
}

// defaultOf returns the secret that a namespace names for its functions, "" for none. If the namespace
// cannot be read, what it said before counts.
func (c *callers) defaultOf(namespace string) string {
	n, err := c.namespaces.get(namespace)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		// The name was checked, unless kubectl has set it: then there may be no such secret.
		c.defaults[namespace], _ = annotation.NamespaceAccess(n.Annotations, n.Labels)
	}
	return c.defaults[namespace]
}

// guardOf returns the guard of a source, nil without one. It reads a new source.
func (c *callers) guardOf(of source, guarded bool) *guard {
	if !guarded {
		return nil
	}
	c.mu.Lock()
	g, ok := c.guards[of]
	if !ok {
		g = &guard{source: of}
		c.guards[of] = g
	}
	c.mu.Unlock()
	if g.ring.Load() == nil {
		c.load(g)
	}
	return g
}

// read returns the content of a source. An error with status 400 says that there is none.
func (c *callers) read(of source) ([]byte, error) {
	switch {
	case of == source{}:
		return ReadKeysFile(c.file)
	case c.secrets == nil:
		return nil, web.BadRequest(errNoSecrets)
	}
	return c.secrets.Value(of.namespace, of.secret)
}

// ReadKeysFile reads the file of [Options.AccessKeys], of at most 1 MiB. The error has status 400 if there is no such file,
// it may not be read, or it is too large. Others, such as a lack of descriptors, may pass.
func ReadKeysFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, web.BadRequest(err)
	}
	if err != nil {
		return nil, err // It names the file.
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKeysFile+1))
	if err == nil && len(text) > maxKeysFile {
		err = web.Refuse(http.StatusBadRequest, "%s has more than %d bytes, the maximum", name, maxKeysFile)
	}
	return text, err
}

// load reads a guard's source. If that is missing or wrong, nobody may call. If it cannot be read, the
// keys of before hold.
func (c *callers) load(g *guard) {
	g.loading.Lock()
	defer g.loading.Unlock()
	before := g.ring.Load()
	if before == nil {
		before = &ring{}
	}
	content, err := c.read(g.source)
	log := c.log.With().Str("namespace", g.namespace).Str("secret", g.secret).Logger()
	if err != nil && web.StatusOf(err) != http.StatusBadRequest && before.keys != nil {
		log.Warn().Err(err).Msg("the keys of functions' callers cannot be read; those of before hold")
		return
	}
	now := &ring{problem: err, hash: sha256.Sum256(content)}
	if err == nil {
		if before.keys != nil && before.hash == now.hash {
			return
		}
		now.keys, now.problem = access.Parse(content)
	}
	g.ring.Store(now)
	if now.problem != nil && (before.problem == nil || before.problem.Error() != now.problem.Error()) {
		log.Error().Err(now.problem).Msg("nobody can call functions, because the keys of their callers cannot be read")
	}
}

// reload reads a source that has just changed, if a function has it.
func (c *callers) reload(of source) {
	c.mu.Lock()
	g := c.guards[of]
	c.mu.Unlock()
	if g != nil {
		c.load(g)
	}
}

// validate refuses a function whose keys are missing or wrong. The error is an [annotation.Error] then.
func (c *callers) validate(f *Function) error {
	key, secret := annotation.InferAccess, f.Inference.Access
	if secret == "" {
		secret = c.defaultOf(f.Deployment.Namespace)
		key += " of namespace " + f.Deployment.Namespace
	}
	return c.validateSecret(key, f.Deployment.Namespace, secret)
}

// validateSecret refuses a secret that a key of annotations names, "" for none, if its keys are missing or wrong. The
// error is an [annotation.Error] then.
func (c *callers) validateSecret(key, namespace, secret string) error {
	if secret == "" {
		return nil
	}
	of := source{namespace, secret}
	content, err := c.read(of)
	if err == nil {
		_, err = access.Parse(content)
	} else if web.StatusOf(err) != http.StatusBadRequest {
		return err
	}
	c.reload(of) // It may be newer than what was read last.
	if err != nil {
		return &annotation.Error{Key: key, Value: secret, Why: "its keys cannot be read: " + err.Error()}
	}
	return nil
}

// closedFor is why nobody can call a function, "" if its callers can.
func closedFor(d *deployed) string {
	if p := d.policy.Load(); p != nil && p.guard != nil {
		if err := p.guard.ring.Load().problem; err != nil {
			return "nobody can call it, because the keys of its callers cannot be read: " + err.Error()
		}
	}
	return ""
}

// used gives each function the policy that its namespace asks for now, and returns the guards that
// functions have. It forgets the others.
func (c *callers) used(functions []*deployed) map[source]*guard {
	c.following.Lock()
	defer c.following.Unlock()
	c.mu.Lock()
	before := maps.Clone(c.guards) // Later ones are those of functions that are being deployed.
	c.mu.Unlock()
	defaults, used := map[string]string{}, map[source]*guard{}
	for _, d := range functions {
		namespace := d.Deployment.Namespace
		if _, known := defaults[namespace]; !known {
			defaults[namespace] = c.defaultOf(namespace)
		}
		c.put(d, d.limiter(), defaults[namespace])
		if p := d.policy.Load(); p != nil && p.guard != nil {
			used[p.guard.source] = p.guard
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for of := range before {
		if used[of] == nil {
			delete(c.guards, of)
		}
	}
	return used
}

// everyFunction returns the deployed functions and those that are still being restored.
func everyFunction(s *Server) []*deployed {
	all := s.restored.in("")
	s.functions.Range(func(key, value any) bool {
		if d := value.(*deployed); key == d.Name { // Some have two names.
			all = append(all, d)
		}
		return true
	})
	return all
}

// Access is the server's side of who may call functions, and how often.
type Access struct{ *Server }

// Follow reads changes of the keys with which functions may be called, until ctx ends. Changes
// through this server's own routes take effect at once. Others do after 5 s at most, and a twentieth
// of a second for each secret that functions have.
func (s Access) Follow(ctx context.Context) {
	for backoff.Wait(ctx, accessPause) {
		for _, g := range s.callers.used(everyFunction(s.Server)) {
			if !backoff.Wait(ctx, readPause) {
				return
			}
			s.callers.load(g)
		}
	}
}
