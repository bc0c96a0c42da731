package provider

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// arrivals are the functions that are being adopted: deployed somewhere else, and
// here in a moment.
type arrivals struct {
	mu      sync.Mutex
	pending map[string]*arrival
}

type arrival struct {
	over  chan struct{}
	users int
}

// begin notes a function by its full name until what it returns is called.
func (a *arrivals) begin(name string) (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.pending[name]
	if !ok {
		if a.pending == nil {
			a.pending = map[string]*arrival{}
		}
		p = &arrival{over: make(chan struct{})}
		a.pending[name] = p
	}
	p.users++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if p.users--; p.users == 0 {
			close(p.over)
			delete(a.pending, name)
		}
	}
}

// wait waits until a function that is being adopted is, or cannot be, or ctx ends.
func (a *arrivals) wait(ctx context.Context, name string) {
	a.mu.Lock()
	p := a.pending[name]
	a.mu.Unlock()
	if p == nil {
		return
	}
	select {
	case <-p.over:
	case <-ctx.Done():
	}
}

// lookUpSoon is lookUp that waits for a function that is being adopted. Only what
// lookUp does not find takes its lock.
func (s *Server) lookUpSoon(ctx context.Context, name string) (*deployed, error) {
	d, err := s.lookUp(name)
	if err == nil || web.StatusOf(err) != http.StatusNotFound {
		return d, err
	}
	a, wrong := resolve(name)
	if wrong != nil {
		return nil, err
	}
	// It may have arrived since it was not found: then there is nothing to wait for.
	s.arriving.wait(ctx, a.full())
	return s.lookUp(name)
}

// known is find for what is not on a request's way: a function that another replica
// has just deployed, and of which no news has come yet, is adopted first.
func (s *Server) known(ctx context.Context, a address) (*deployed, error) {
	d, absent := s.find(a)
	if absent == nil {
		return d, nil
	}
	r, err := s.store.Function(a.namespace, a.name)
	if errors.Is(err, store.ErrAbsent) {
		return nil, absent
	}
	if err == nil {
		err = s.Adopt(ctx, r)
	}
	if d, absent := s.find(a); absent == nil {
		return d, nil // It may be there to say what is wrong.
	}
	if err != nil {
		return nil, err
	}
	return nil, absent
}
