package provider

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/source/fetch"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Fetcher brings the models that deployments name by URIs to this machine.
type Fetcher interface {
	// Fetch returns once the model is here. It may take long; p shows how far it is. Its error is an
	// [annotation.Error] if the deployment is at fault.
	Fetch(ctx context.Context, d types.FunctionDeployment, in annotation.Inference, p *fetch.Progress) error
	// Keep keeps a deployment that was accepted before its model is here, over restarts, until Drop. Kept lists those.
	Keep(d types.FunctionDeployment) error
	Drop(namespace, name string)
	Kept() ([]types.FunctionDeployment, error)
}

// DownloadingError is the error of a deployment whose model a controller downloads in the background. The deployment
// must be tried again soon.
type DownloadingError struct {
	// Progress says how far it is, such as "120 of 500 MB are here".
	Progress string
}

// Error implements error.
func (e *DownloadingError) Error() string { return "the model is being downloaded: " + e.Progress }

// fetchPatience is how long a deployment waits for its model before it is answered. faas-cli waits for 60 s.
const fetchPatience = 20 * time.Second

// fetching are the deployments whose models are being downloaded. A later deployment of a function takes an earlier
// one's place, and a deletion ends it. Until its model is here a new function is listed, and the one before is served.
type fetching struct {
	by       Fetcher
	patience time.Duration
	// ctx ends with the provider.
	ctx context.Context

	mu sync.Mutex
	// waiting are the deployments by full name, failed the reasons why the latest ones failed after their answer.
	waiting map[string]*waitingDeployment
	failed  map[string]string
}

// waitingDeployment is a deployment whose model is being downloaded.
type waitingDeployment struct {
	progress fetch.Progress
	cancel   context.CancelFunc
	done     chan struct{}
	err      error
}

// replace ends what waits for a function, and returns what waits instead. next is nil for nothing.
func (f *fetching) replace(full string, next *waitingDeployment) {
	f.mu.Lock()
	was := f.waiting[full]
	delete(f.waiting, full)
	delete(f.failed, full)
	if next != nil {
		if f.waiting == nil {
			f.waiting = map[string]*waitingDeployment{}
		}
		f.waiting[full] = next
	}
	f.mu.Unlock()
	if was != nil {
		was.cancel()
		<-was.done
	}
}

// cancel ends what waits for a function, for good.
func (f *fetching) cancel(a address) {
	f.replace(a.full(), nil)
	if f.by != nil {
		f.by.Drop(a.namespace, a.name)
	}
}

// settle ends what waits for a function that was deployed: done, which brought the deployment's model, nil for nothing, or
// what waited for an earlier deployment. The caller holds the function's lock, as those do who keep a deployment.
func (f *fetching) settle(a address, done *waitingDeployment) {
	if done == nil {
		f.cancel(a)
	} else if f.end(a.full(), done, nil) {
		f.by.Drop(a.namespace, a.name)
	}
}

// current reports whether no other deployment has taken this one's place.
func (f *fetching) current(full string, w *waitingDeployment) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.waiting[full] == w
}

// end notes that a deployment waits no longer. It reports false if another one has taken its place.
func (f *fetching) end(full string, w *waitingDeployment, why error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting[full] != w {
		return false
	}
	delete(f.waiting, full)
	if why != nil {
		if f.failed == nil {
			f.failed = map[string]string{}
		}
		f.failed[full] = web.Conceal(why.Error())
	}
	return true
}

// shown adds to a function's status how far its next model is, or why that did not come.
func (f *fetching) shown(full string, now Status) Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch w, why := f.waiting[full], f.failed[full]; {
	case w != nil:
		now.Progress = "the model is being downloaded: " + w.progress.String()
	case why != "" && now.Problem == "":
		now.Problem, now.Slight = Before(why), true
	}
	return now
}

// downloading is the dispatcher of a new function whose model is not here yet.
type downloading struct {
	name string
	of   *waitingDeployment
}

// Invoke refuses the request for now.
func (d downloading) Invoke(context.Context, *frame.Request) (*frame.Response, error) {
	return nil, web.Refuse(http.StatusServiceUnavailable, "the model of function %s is being downloaded: "+
		"%v; try again later", d.name, &d.of.progress)
}

// isDownloading reports whether the function waits for its first model.
func (d *deployed) isDownloading() bool {
	if d == nil {
		return false
	}
	_, is := d.dispatcher.(downloading)
	return is
}

// waitsFor reports whether a deployment is the first of its function.
func (d *deployed) waitsFor(w *waitingDeployment) bool {
	of, is := d.dispatcher.(downloading)
	return is && of.of == w
}

// applyFetched deploys once the model is here. If that takes longer than the patience, it returns nil, and the
// deployment
// goes on. The caller may hang up before.
func (c change) applyFetched(ctx context.Context, s *Server) error {
	a, f := c.address, &s.fetching
	w := &waitingDeployment{done: make(chan struct{})}
	inner, cancel := context.WithCancel(f.ctx)
	w.cancel = cancel
	f.replace(a.full(), w)
	go func() {
		defer close(w.done)
		w.err = f.by.Fetch(inner, c.deployment, c.settings, &w.progress)
	}()
	c.announce(s, w)
	late := time.After(f.patience)
	select {
	case <-w.done:
		return c.finish(ctx, s, w)
	case <-ctx.Done():
		cancel()
		<-w.done
		return c.finish(context.WithoutCancel(ctx), s, w)
	case <-late:
	}
	if err := c.keep(s, w); err != nil {
		cancel()
		<-w.done
		_ = c.finish(context.WithoutCancel(ctx), s, w) // It fails, as the download does.
		return err
	}
	s.log.Info().Str("function", a.full()).Str("progress", w.progress.String()).Msg("accepted; its model " +
		"is being downloaded")
	go c.follow(s, w)
	return nil
}

// keep keeps a deployment over restarts. It refuses if another one has taken its place, and may have dropped it.
func (c change) keep(s *Server, w *waitingDeployment) error {
	defer s.functionLocks.Lock(c.address.full())()
	if !s.fetching.current(c.address.full(), w) {
		return c.overtaken()
	}
	return s.fetching.by.Keep(c.deployment)
}

// overtaken refuses a deployment that waited for its model.
func (c change) overtaken() error {
	return web.Refuse(http.StatusConflict, "while the model was being downloaded, another deployment "+
		"or a deletion of function %s came; deploy again", c.address.name)
}

// follow ends a deployment that was answered before its model was here.
func (c change) follow(s *Server, w *waitingDeployment) {
	<-w.done
	if s.fetching.ctx.Err() != nil {
		return // The next provider goes on.
	}
	c.header = nil // The client has its answer.
	c.mustExist = false
	if err := c.finish(s.fetching.ctx, s, w); err != nil {
		s.log.Warn().Err(err).Str("function", c.address.full()).Msg("a deployment failed after its answer")
	}
}

// announce shows a new function.
func (c change) announce(s *Server, w *waitingDeployment) {
	defer s.functionLocks.Lock(c.address.full())()
	if !s.fetching.current(c.address.full(), w) {
		return // A deletion came.
	}
	if before, err := s.find(c.address); err == nil && !before.isDownloading() {
		return
	}
	f := &Function{Name: c.address.full(), Deployment: c.deployment, Inference: c.settings, CreatedAt: s.now().UTC()}
	s.publish(s.deployed(f, downloading{c.address.full(), w}))
}

// finish deploys what is here now, and ends the waiting. A new function that failed goes, unless it was answered:
// then its problem stays.
func (c change) finish(ctx context.Context, s *Server, w *waitingDeployment) error {
	full, answered := c.address.full(), c.header == nil
	err := w.err
	w.cancel()
	c.awaited = w
	if err == nil {
		if err = c.apply(ctx, s); err == nil {
			return nil
		}
	}
	defer s.functionLocks.Lock(full)()
	d, gone := s.find(c.address)
	if !s.fetching.current(full, w) {
		if gone == nil && d.waitsFor(w) {
			s.withdraw(d)
			s.metrics.Remove(full)
		}
		return c.overtaken()
	}
	first, shown := gone == nil && d.waitsFor(w), error(nil)
	switch {
	case first && answered:
		s.publish(s.deployed(d.Function, broken{full, err}))
	case first:
		s.withdraw(d)
		s.metrics.Remove(full)
	case answered:
		shown = err // Otherwise the client gets it.
	}
	if !s.fetching.end(full, w, shown) {
		return err
	}
	s.fetching.by.Drop(c.address.namespace, c.address.name)
	if w.err != nil && !errors.Is(w.err, context.Canceled) {
		fields := decisions.Fields{Image: c.deployment.Image, Error: web.Conceal(err.Error())}
		s.events.log.Add(s.now(), full, decisions.Reject, fields)
	}
	return err
}

// resumeFetching goes on with the deployments that an earlier provider has accepted before their models were here.
func resumeFetching(s *Server) {
	if s.fetching.by == nil {
		return
	}
	kept, err := s.fetching.by.Kept()
	if err != nil {
		s.log.Warn().Err(err).Msg("deployments whose models were being downloaded cannot be read; deploy them again")
	}
	for _, d := range kept {
		in, err := annotation.Parse(d)
		if err != nil || in.Source == "" {
			s.fetching.by.Drop(d.Namespace, d.Service)
			continue
		}
		c := change{address: address{d.Service, d.Namespace}, deployment: d, settings: in}
		w := &waitingDeployment{done: make(chan struct{})}
		inner, cancel := context.WithCancel(s.fetching.ctx)
		w.cancel = cancel
		s.fetching.replace(c.address.full(), w)
		go func() {
			defer close(w.done)
			w.err = s.fetching.by.Fetch(inner, d, in, &w.progress)
		}()
		c.announce(s, w)
		go c.follow(s, w)
	}
}
