package provider

import (
	"context"
	"fmt"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
)

// RolledBack is why a deployment does not take over that was rolled back once. It is not tried again before the object
// says something else.
type RolledBack struct{ End store.RolloutEnd }

// Error implements error.
func (r *RolledBack) Error() string {
	return fmt.Sprintf("revision %d was rolled back: %s; change the function to try again", r.End.Revision, r.End.Why)
}

// Rollouts are the server's gradual rollouts for its platform.
type Rollouts struct{ Server *Server }

// Begin begins the gradual rollout of a deployment that the store has from somebody else, as from kubectl, or goes
// on with it. The deployment has its image's annotations. It returns false if the deployment is to be applied at once: it
// does not ask for a rollout, or there is no revision before. An error says why it cannot take over, a [RolledBack]
// that it has been tried. It wraps [ErrArriving] if the function is still being restored.
func (r Rollouts) Begin(ctx context.Context, d types.FunctionDeployment) (gradual bool, err error) {
	s := r.Server
	in, err := annotation.Parse(d)
	if err != nil || !in.Canary.Gradual {
		return false, nil // An error is reported where it is applied.
	}
	a := address{name: d.Service, namespace: d.Namespace}
	if err := r.awaitRestored(ctx, a); err != nil {
		return true, err
	}
	defer s.namespaceLocks.Share(a.namespace)()
	defer s.functionLocks.Lock(a.full())()
	before, err := s.find(a)
	if err != nil {
		before = nil
	}
	if !becomesCandidate(before, d, in) {
		return false, nil
	}
	if err := validateName(d, in); err != nil {
		return true, err
	}
	if last := s.rollouts.revisions.last(a); last != nil && !last.Promoted && last.Hash == store.Hash(runs(d)) {
		return true, &RolledBack{*last}
	}
	return true, s.rollouts.deployCandidate(ctx, before, d, in, true)
}

// TakeBack ends the gradual rollout of a deployment that [Rollouts.Begin] began, if it goes on: the store asks for another one.
// A rollout of a revision up to present has ended already. The error wraps [ErrArriving] if the function is still being
// restored.
func (r Rollouts) TakeBack(ctx context.Context, namespace, name string, present uint64) error {
	a := address{name: name, namespace: namespace}
	if err := r.awaitRestored(ctx, a); err != nil {
		return err
	}
	if x := r.Server.rollouts.ofFunction(a.full()); x != nil && x.revision > present {
		r.Server.rollouts.endRollout(ctx, a, "the function's object does not ask for it any more")
	}
	return nil
}

// awaitRestored waits for a function and its candidate that a restart of the provider is still restoring.
func (r Rollouts) awaitRestored(ctx context.Context, a address) error {
	for _, restored := range []address{a, a.candidate()} {
		if r.Server.restored.isMissing(restored.full()) {
			if err := r.Server.arriving.wait(ctx, restored.full(), changePatience); err != nil {
				return err
			}
		}
	}
	return nil
}
