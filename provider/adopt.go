package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/provider/store"
)

// Adopt makes a function run as the store has it, after another replica of the
// provider or kubectl has changed it. r is the store's record when the change was
// noticed. A function that already runs as r says stays as it is, so a server may be
// told of its own changes. After an error the revision before goes on running. If none
// ran, invocations answer with the reason. The error wraps [ErrArriving] if the function is
// still being restored.
func (s *Server) Adopt(ctx context.Context, r store.Function) error {
	a := address{name: r.Deployment.Service, namespace: r.Deployment.Namespace}
	if s.restored.isMissing(a.full()) { // Its restoring has the locks, maybe for long.
		if err := s.arriving.wait(ctx, a.full(), changePatience); err != nil {
			return err
		}
	}
	f, _ := restored(r) // Deploying it reports the error.
	defer s.arriving.begin(a.full(), f.Inference.SLO)()
	defer s.namespaceLocks.Share(a.namespace)()
	defer s.functionLocks.Lock(a.full())()
	before, err := s.find(a)
	if err != nil {
		before = nil
	}
	if before.has(r) {
		return nil
	}
	if before == nil || r.Revision <= before.Revision {
		// r may be older than this server's own deletion, deployment or scaling, or
		// come from an API server that lags.
		r, err = s.store.Function(a.namespace, a.name)
		if errors.Is(err, store.ErrAbsent) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("function %s could not be read from the store: %w", a.full(), err)
		}
	}
	if before != nil && before.Revision == r.Revision && !before.isBroken() {
		return s.adoptReplicas(before, r.Replicas)
	}
	return s.adopt(ctx, before, r)
}

// has reports whether a function runs as r says.
func (d *deployed) has(r store.Function) bool {
	return d != nil && !d.isBroken() && d.Revision == r.Revision && d.Replicas == r.Replicas
}

// adopt makes another revision run; before is nil if there is none.
func (s *Server) adopt(ctx context.Context, before *deployed, r store.Function) error {
	nothing, run := before == nil || before.isBroken(), s.deployStored
	if nothing {
		run = s.deployOrFallBack
	}
	f, dispatcher, err := run(ctx, r)
	if err == nil || nothing {
		s.publish(s.deployed(f, dispatcher))
	}
	if err != nil {
		return err
	}
	if before != nil && before.Revision > 0 && r.Revision > before.Revision {
		s.fetching.cancel(before.address()) // What waits for its model is older, and must not replace this.
	}
	s.log.Info().Str("function", f.Name).Str("image", f.Deployment.Image).Uint64("revision", f.Revision).Msg("deployed after a change from outside")
	return nil
}

// adoptReplicas scales a function as the scale route does, but stores nothing: the
// store already has the new number.
func (s *Server) adoptReplicas(d *deployed, n uint64) error {
	if n == d.Replicas {
		return nil
	}
	if err := s.controller.Scale(d.Name, n); err != nil {
		return fmt.Errorf("function %s was not scaled: %w", d.Name, err)
	}
	f := *d.Function
	f.Replicas = n
	s.publish(s.deployed(&f, d.dispatcher))
	s.log.Info().Str("function", d.Name).Uint64("replicas", n).Msg("scaled after a change from outside")
	return nil
}

// Forget ends a function that another replica or kubectl has deleted. It returns nil
// for a function that this server does not know. The error wraps [ErrArriving] if the function
// is still being restored or adopted.
func (s *Server) Forget(ctx context.Context, namespace, name string) error {
	a := address{name: name, namespace: namespace}
	if err := s.arriving.wait(ctx, a.full(), changePatience); err != nil {
		return err
	}
	defer s.functionLocks.Lock(a.full())()
	d, err := s.find(a)
	if err != nil {
		return nil
	}
	if d.Revision > 0 { // Otherwise it is a later function of this name, which waits for its model.
		s.fetching.cancel(a)
	}
	return s.end(ctx, d)
}

// end hides a function from requests and ends its instances. The caller holds the
// function's lock.
func (s *Server) end(ctx context.Context, d *deployed) error {
	s.withdraw(d)
	s.rollouts.revisions.forget(d.address()) // A later function of this name may belong to somebody else.
	err := s.controller.Remove(context.WithoutCancel(ctx), d.Name)
	s.metrics.Remove(d.Name)
	if err != nil {
		return fmt.Errorf("function %s was deleted, but some of its instances did not end: %w", d.Name, err)
	}
	s.log.Info().Str("function", d.Name).Msg("deleted")
	return nil
}
