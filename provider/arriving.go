package provider

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/provider/access"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// arrivals are the functions that this server is adopting, because another replica or
// kubectl deployed them, and those that it is to restore after a restart.
type arrivals struct {
	// shut is closed when the provider shuts down.
	shut <-chan struct{}

	mu      sync.Mutex
	pending map[string]*arrival
}

// arrival is one such function. over is closed when the last of its users has ended.
type arrival struct {
	over  chan struct{}
	users int
	// objective is the function's latency objective.
	objective time.Duration
	// limiter is that of its queued requests, nil for none.
	limiter *access.Limiter
}

// ErrArriving is wrapped by the errors about functions that are still being restored or
// adopted.
var ErrArriving = errors.New("not there yet")

// arriving returns the error about such a function.
func arriving(name string) error {
	err := web.Unavailable(time.Second, "function %s is still being restored or deployed; try again in a moment", name)
	err.Cause = ErrArriving
	return err
}

// changePatience is how long a change of an arriving function, or a question about it, waits
// for it.
const changePatience = slowRestore

// begin notes a function by its full name, with its latency objective, until end is called.
func (a *arrivals) begin(name string, objective time.Duration) (end func()) {
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
	p.users, p.objective = p.users+1, objective
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if p.users--; p.users == 0 {
			close(p.over)
			delete(a.pending, name)
		}
	}
}

// wait returns when the adoption or restoring of a function has ended, well or not, or when
// ctx ends. It returns at once if the function is not arriving. The error says that it takes
// longer than patience, or that the provider shuts down meanwhile.
func (a *arrivals) wait(ctx context.Context, name string, patience time.Duration) error {
	p := a.find(name)
	if p == nil {
		return nil
	}
	late := time.After(patience)
	select {
	case <-p.over:
	case <-ctx.Done():
	case <-a.shut:
		return errDraining
	case <-late:
		return arriving(name)
	}
	return nil
}

// objective returns the latency objective of a function that is arriving, otherwise 0.
func (a *arrivals) objective(name string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pending[name]; p != nil {
		return p.objective
	}
	return 0
}

// find returns a function's arrival, nil if the function is not arriving.
func (a *arrivals) find(name string) *arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pending[name]
}

// lookUpOrWait is lookUp that waits for a function that is being adopted or restored, as long
// as a request may wait for a first instance. It takes the lock of arriving only if lookUp
// does not find the function. waited is how long it has waited.
func (s invocations) lookUpOrWait(ctx context.Context, name string) (d *deployed, waited time.Duration, err error) {
	d, err = s.lookUp(name)
	if err == nil || web.StatusOf(err) != http.StatusNotFound {
		return d, 0, err
	}
	a, wrong := resolve(name)
	if wrong != nil {
		return nil, 0, err
	}
	began := time.Now()
	// It may have arrived in the meantime: then wait returns at once.
	if err := s.arriving.wait(ctx, a.full(), s.arriving.objective(a.full())+s.coldWait); err != nil {
		return nil, 0, err
	}
	d, err = s.lookUp(name)
	return d, time.Since(began), err
}

// findOrAdopt is find for callers off the request path. It waits, for at most patience, for a
// function that is arriving, and adopts one that another replica has deployed and this server
// has not heard of yet.
func (s *Server) findOrAdopt(ctx context.Context, a address, patience time.Duration) (*deployed, error) {
	d, absent := s.find(a)
	if absent == nil {
		return d, nil
	}
	err := s.arriving.wait(ctx, a.full(), patience)
	if d, absent := s.find(a); absent == nil {
		return d, nil
	}
	if err == nil && s.inFlight.Closed() {
		err = errDraining // It must not be adopted now.
	}
	if err != nil {
		return nil, err
	}
	r, err := s.store.Function(a.namespace, a.name)
	if errors.Is(err, store.ErrAbsent) {
		return nil, absent
	}
	if err == nil {
		err = s.Adopt(ctx, r)
	}
	if d, absent := s.find(a); absent == nil {
		return d, nil // Its dispatcher may be the broken one, which says what is wrong.
	}
	if err != nil {
		return nil, err
	}
	return nil, absent
}
