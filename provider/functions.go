package provider

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Restore brings the functions in the store back, as after a restart. One that
// cannot run any more stays listed, and its invocations say why; only a store
// that cannot be read is an error.
func (s *Server) Restore(ctx context.Context) error {
	records, err := s.store.Functions("")
	if err != nil {
		return fmt.Errorf("restoring functions: %w", err)
	}
	if err := s.spaces.restore(records); err != nil {
		return err
	}
	for _, r := range records {
		f, dispatcher, err := s.begin(ctx, r)
		if err != nil {
			s.log.Error().Err(err).Str("function", f.Name).Bool("as_before", f.Revision != r.Revision).Msg("a function could not be restored")
		}
		s.publish(s.deployed(f, dispatcher))
	}
	return nil
}

// remembering is a store that knows which deployment of a function was accepted last,
// false for none.
type remembering interface {
	Accepted(namespace, name string) (store.Function, bool)
}

// begin makes a function run of which nothing runs yet. Where it cannot run as it is
// said, it is what was accepted before that if the store remembers and that can run, or
// else what says why; the error is why in both cases.
func (s *Server) begin(ctx context.Context, r store.Function) (*Function, Dispatcher, error) {
	f, dispatcher, err := s.try(ctx, r)
	if err == nil {
		return f, dispatcher, nil
	}
	if m, ok := s.store.(remembering); ok {
		was, known := m.Accepted(r.Deployment.Namespace, r.Deployment.Service)
		if known && was.Revision < r.Revision {
			if before, dispatcher, wrong := s.try(ctx, was); wrong == nil {
				return before, dispatcher, err
			}
		}
	}
	return f, broken{name: f.Name, err: err}, err
}

func (s *Server) try(ctx context.Context, r store.Function) (*Function, Dispatcher, error) {
	f, err := restored(r)
	if err != nil {
		return f, nil, err
	}
	dispatcher, err := s.controller.Deploy(ctx, f)
	return f, dispatcher, err
}

// broken stands in for the dispatcher of a function that could not be
// restored or adopted.
type broken struct {
	name string
	err  error
}

// Invoke tells what is wrong.
func (b broken) Invoke(context.Context, *frame.Request) (*frame.Response, error) {
	return nil, web.Refuse(http.StatusServiceUnavailable, "function %s cannot run: %v; mend that, or deploy it again", b.name, b.err)
}

// isBroken reports whether the function stands there only to say what is wrong.
func (d *deployed) isBroken() bool {
	_, is := d.dispatcher.(broken)
	return is
}

// registry is what is deployed.
type registry struct {
	// functions are by full name and, in the default namespace, by bare name. The map
	// never changes; replace puts another in its place.
	functions atomic.Pointer[map[string]*deployed]
	change    sync.Mutex
	// listing is what the list shows of functions, sorted.
	listing atomic.Pointer[listing]
}

// publish makes d what requests and look-ups find under its name.
func (g *registry) publish(d *deployed) {
	g.replace(func(m map[string]*deployed) {
		m[d.Name] = d
		if d.Deployment.Namespace == DefaultNamespace {
			m[d.Deployment.Service] = d
		}
	})
}

// withdraw makes requests and look-ups find nothing under d's name.
func (g *registry) withdraw(d *deployed) {
	g.replace(func(m map[string]*deployed) {
		delete(m, d.Name)
		if d.Deployment.Namespace == DefaultNamespace {
			delete(m, d.Deployment.Service)
		}
	})
}

func (g *registry) replace(edit func(map[string]*deployed)) {
	g.change.Lock()
	defer g.change.Unlock()
	m := maps.Clone(*g.functions.Load())
	edit(m)
	g.functions.Store(&m)
}

// find returns a deployed function by its address.
func (g *registry) find(a address) (*deployed, error) {
	if d, ok := (*g.functions.Load())[a.full()]; ok {
		return d, nil
	}
	return nil, absent(a)
}
