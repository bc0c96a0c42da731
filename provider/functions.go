package provider

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// acceptedStore is a store that knows which deployment of a function was accepted last.
// Accepted returns false if none was.
type acceptedStore interface {
	Accepted(namespace, name string) (store.Function, bool)
}

// deployOrFallBack makes a function run that does not run yet. If the deployment in r cannot run, it
// falls back to the one accepted before, if the store has it and it can run. Otherwise
// the dispatcher is one that answers with the reason. The error is the reason in both
// cases.
func (s *Server) deployOrFallBack(ctx context.Context, r store.Function) (*Function, Dispatcher, error) {
	f, dispatcher, err := s.deployStored(ctx, r)
	if err == nil {
		return f, dispatcher, nil
	}
	if m, ok := s.store.(acceptedStore); ok {
		was, known := m.Accepted(r.Deployment.Namespace, r.Deployment.Service)
		if known && was.Revision < r.Revision {
			if before, dispatcher, wrong := s.deployStored(ctx, was); wrong == nil {
				return before, dispatcher, err
			}
		}
	}
	return f, broken{name: f.Name, err: err}, err
}

// deployStored checks the deployment in r again and makes it run.
func (s *Server) deployStored(ctx context.Context, r store.Function) (*Function, Dispatcher, error) {
	f, err := restored(r)
	if err != nil {
		return f, nil, err
	}
	f.Restored = s.restored.isMissing(f.Name) || accepted(s.store, r)
	if !f.Restored { // What was accepted before stays, and nobody can call it without keys.
		if err := s.callers.validate(f); err != nil {
			return f, nil, err
		}
	}
	dispatcher, err := s.controller.Deploy(ctx, f)
	return f, dispatcher, err
}

// accepted reports whether a store knows that the deployment in r was accepted.
func accepted(in Store, r store.Function) bool {
	m, ok := in.(acceptedStore)
	if !ok {
		return false
	}
	was, known := m.Accepted(r.Deployment.Namespace, r.Deployment.Service)
	return known && was.Revision == r.Revision
}

// broken stands in for the dispatcher of a function that could not be
// restored or adopted.
type broken struct {
	name string
	err  error
}

// Invoke refuses the request with the reason.
func (b broken) Invoke(context.Context, *frame.Request) (*frame.Response, error) {
	return nil, web.Refuse(http.StatusServiceUnavailable, "function %s cannot run: %v; fix that, or deploy the function again", b.name, b.err)
}

// isBroken reports whether the function's dispatcher only says what is wrong.
func (d *deployed) isBroken() bool {
	_, is := d.dispatcher.(broken)
	return is
}

// registry holds the deployed functions.
type registry struct {
	// functions has every *deployed by its full name, and those in the default namespace by
	// their bare name, too. Reading it takes no lock, and a change copies nothing: its cost
	// does not grow with the number of functions.
	functions sync.Map
	// edits counts the changes of functions.
	edits atomic.Uint64
	// listing has the same functions, sorted for lists.
	listing atomic.Pointer[listing]
	// rollouts are those in progress.
	rollouts rollouts
}

// publish makes requests and look-ups find d under its name.
func (g *registry) publish(d *deployed) {
	defer g.rollouts.published(d)
	if before, ok := g.functions.Swap(d.Name, d); ok && before != any(d) {
		before.(*deployed).answers.close()
	}
	if d.Deployment.Namespace == DefaultNamespace {
		g.functions.Store(d.Deployment.Service, d)
	}
	g.edits.Add(1)
}

// withdraw makes requests and look-ups find nothing under d's name.
func (g *registry) withdraw(d *deployed) {
	defer g.rollouts.withdrawn(d)
	defer d.answers.close()
	g.functions.Delete(d.Name)
	if d.Deployment.Namespace == DefaultNamespace {
		g.functions.Delete(d.Deployment.Service)
	}
	g.edits.Add(1)
}

// named returns the function with a full name, or a bare name in the default namespace.
func (g *registry) named(name string) (d *deployed, ok bool) {
	found, ok := g.functions.Load(name)
	if !ok {
		return nil, false
	}
	return found.(*deployed), true
}

// find returns a deployed function by its address.
func (g *registry) find(a address) (*deployed, error) {
	if d, ok := g.named(a.full()); ok {
		return d, nil
	}
	return nil, absent(a)
}
