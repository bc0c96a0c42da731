package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/faas-infer/faas-infer/provider/store"
)

// Adopt makes a function run as the store has it, where somebody other than this
// server has changed it: another replica of the provider, or kubectl. r is what the
// store held when the change was noticed; one that runs already as r says is left
// alone, so that a server may be told of its own changes. An error leaves what ran
// before running; where nothing did, invocations say why.
func (s *Server) Adopt(ctx context.Context, r store.Function) error {
	a := address{name: r.Deployment.Service, namespace: r.Deployment.Namespace}
	defer s.arriving.begin(a.full())()
	defer s.placing.Share(a.namespace)()
	defer s.busy.Lock(a.full())()
	before, err := s.find(a)
	if err != nil {
		before = nil
	}
	if before.has(r) {
		return nil
	}
	if before == nil || r.Revision <= before.Revision {
		// The news may be from before this server deleted, deployed or scaled it, or
		// from an API server that is behind.
		r, err = s.store.Function(a.namespace, a.name)
		if errors.Is(err, store.ErrAbsent) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("function %s could not be read again: %w", a.full(), err)
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
	nothing, run := before == nil || before.isBroken(), s.try
	if nothing {
		run = s.begin
	}
	f, dispatcher, err := run(ctx, r)
	if err == nil || nothing {
		s.publish(s.deployed(f, dispatcher))
	}
	if err != nil {
		return err
	}
	s.log.Info().Str("function", f.Name).Str("image", f.Deployment.Image).Uint64("revision", f.Revision).Msg("deployed, as somebody else has it")
	return nil
}

// adoptReplicas scales a function as the scale route does, but keeps nothing: the
// store has it already.
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
	s.log.Info().Str("function", d.Name).Uint64("replicas", n).Msg("scaled, as somebody else has it")
	return nil
}

// Forget ends a function that somebody other than this server has deleted. One that
// this server does not know is no error.
func (s *Server) Forget(ctx context.Context, namespace, name string) error {
	a := address{name: name, namespace: namespace}
	defer s.busy.Lock(a.full())()
	d, err := s.find(a)
	if err != nil {
		return nil
	}
	return s.end(ctx, d)
}

// end makes requests find a function no more and ends its instances; the caller has
// its lock.
func (s *Server) end(ctx context.Context, d *deployed) error {
	s.withdraw(d)
	err := s.controller.Remove(context.WithoutCancel(ctx), d.Name)
	s.metrics.Remove(d.Name)
	if err != nil {
		return fmt.Errorf("function %s was deleted, but its instances were not all ended: %w", d.Name, err)
	}
	s.log.Info().Str("function", d.Name).Msg("deleted")
	return nil
}
