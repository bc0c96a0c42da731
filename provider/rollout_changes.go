package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/rollout"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// validateName refuses names that are reserved for candidates, or leave no room for a candidate's.
func validateName(d types.FunctionDeployment, in annotation.Inference) error {
	if strings.HasSuffix(d.Service, CandidateSuffix) {
		return &annotation.Error{Key: "service", Value: d.Service, Why: fmt.Sprintf("names that end in %s are those of candidates (%s); choose another",
			CandidateSuffix, annotation.InferCanary)}
	}
	if in.Canary.Gradual && !annotation.IsName(d.Service+CandidateSuffix) {
		return &annotation.Error{Key: "service", Value: d.Service, Why: fmt.Sprintf("with %s it must have at most %d characters, because %s is added to it",
			annotation.InferCanary, 63-len(CandidateSuffix), CandidateSuffix)}
	}
	return nil
}

// runs returns a deployment without its name and what it says of its rollout.
func runs(d types.FunctionDeployment) types.FunctionDeployment {
	d.Service = ""
	for _, of := range []**map[string]string{&d.Annotations, &d.Labels} {
		if *of == nil {
			continue
		}
		kept := maps.Clone(**of)
		maps.DeleteFunc(kept, func(key, _ string) bool { return annotation.CanarySettings(key) })
		if *of = &kept; len(kept) == 0 {
			*of = nil
		}
	}
	return d
}

// becomesCandidate reports whether a deployment is to be rolled out gradually over the one before.
func becomesCandidate(before *deployed, d types.FunctionDeployment, in annotation.Inference) bool {
	return in.Canary.Gradual && before != nil && !before.isBroken() && store.Hash(runs(d)) != store.Hash(runs(before.Deployment))
}

// unseen refuses a deployment with 412 if it would replace another candidate, while its client says which revision it has
// seen: that is the present one.
func (s *rollouts) unseen(h http.Header, before *deployed, d types.FunctionDeployment) error {
	seen, a := h.Get("If-Match"), before.address()
	r := s.ofFunction(a.full())
	if seen == "" || seen == "*" || r == nil || r.revision <= before.Revision {
		return nil
	}
	d.Service = a.candidate().name
	if r.split.candidate.Load().Hash == store.Hash(d) {
		return nil
	}
	return web.Refuse(http.StatusPreconditionFailed, "revision %d of function %s is being rolled out; look at it, or abort it first: "+
		"faas-infer rollout abort %s", r.revision, a.full(), a.name)
}

// deployCandidate deploys a later revision of a function beside the one before. The caller holds the function's lock.
// stored: the store asks for it, so it asks for an earlier candidate no more, which may come again. Otherwise the
// store's goes and must not come back on its own.
func (s *rollouts) deployCandidate(ctx context.Context, before *deployed, d types.FunctionDeployment, in annotation.Inference, stored bool) error {
	if in.IsInference != before.Inference.IsInference {
		return &annotation.Error{Key: annotation.InferCanary, Value: "set", Why: "a model cannot take over from a program gradually, nor a program from a model; leave it out"}
	}
	a := before.address().candidate()
	d.Service = a.name
	defer s.functionLocks.Lock(a.full())()
	earlier, err := s.find(a)
	if err == nil && earlier.Hash == store.Hash(d) {
		return nil // It is being rolled out.
	}
	if err != nil {
		earlier = nil
	} else if _, is := earlier.candidateOf(); !is {
		return web.Refuse(http.StatusConflict, "function %s has the name of the candidate; deploy it under another name, and remove it", a.full())
	}
	f, err := s.revise(earlier, d, in)
	if err != nil {
		return err
	}
	f.Replicas = max(1, uint64(in.MinReplicas)) // It must be ready before requests come.
	if err := s.callers.validate(f); err != nil {
		return err
	}
	if err := s.replaceFunction(ctx, earlier, f); err != nil {
		return err
	}
	if earlier != nil {
		hash := ""
		if !stored {
			hash = store.Hash(runs(earlier.Deployment))
		}
		s.revisions.noteEndOf(before.address(), earlier.Function, false, hash, fmt.Sprintf("revision %d replaced it", f.Revision))
	}
	s.decided(before.address(), f.Revision, "began to roll out image %s as revision %d: %s", d.Image, f.Revision, describeSteps(in.Canary))
	return nil
}

func describeSteps(c annotation.Canary) string {
	if c.Steps == "" {
		return "it gets the requests that ask for it"
	}
	var b strings.Builder
	for i, share := range c.Shares() {
		if i > 0 {
			b.WriteString(", then ")
		}
		fmt.Fprintf(&b, "%d %%", share)
	}
	return b.String() + " of the requests"
}

// promote lets the deployment of a candidate take over, and removes the candidate once the new instances answer. It
// returns why the deployment did not take over.
func (s *rollouts) promote(ctx context.Context, r *running, why string) error {
	ctx = context.WithoutCancel(ctx)
	f, err := s.takeOver(ctx, r, why)
	if err != nil {
		return errors.Join(err, s.rollBack(ctx, r, refused, "it could not take over: "+err.Error()))
	}
	s.awaitHandOver(ctx, r, f.Revision)
	_ = s.removeCandidate(ctx, r) // It logs its error, and the next look tries again.
	return nil
}

// awaitHandOver waits until the instances of a revision that takes over answer.
func (s *rollouts) awaitHandOver(ctx context.Context, r *running, revision uint64) {
	c, ok := s.controller.(WatchedController)
	if !ok {
		return
	}
	name := r.of.full()
	shares := func() bool { return s.of(name).Load() == r.split } // Not after a later deployment.
	for late := time.Now().Add(handOverPatience); shares() && time.Now().Before(late) && !s.inFlight.Closed(); {
		if now, known := c.Watch(name); !known || now.Revision >= revision {
			return
		}
		backoff.Wait(ctx, rolloutPause)
	}
}

// takeOver deploys a candidate's deployment under its function's name.
func (s *rollouts) takeOver(ctx context.Context, r *running, why string) (*Function, error) {
	defer s.namespaceLocks.Share(r.of.namespace)()
	defer s.functionLocks.Lock(r.of.full())()
	before, err := s.find(r.of)
	if err != nil {
		return nil, err
	}
	next := r.split.candidate.Load()
	switch {
	case before.Revision > next.Revision: // It was deployed while this waited for the lock.
		return nil, fmt.Errorf("revision %d was deployed meanwhile", before.Revision)
	case s.ofFunction(r.of.full()) != r:
		return nil, errors.New("the candidate was removed or replaced meanwhile")
	}
	d := next.Deployment
	d.Service = r.of.name
	f := &Function{
		Name: r.of.full(), Deployment: d, Inference: next.Inference, Revision: next.Revision, Hash: store.Hash(d),
		Replicas: ReplicasAfter(next.Inference, before.Replicas, uint64(before.Inference.MinReplicas)), CreatedAt: before.CreatedAt,
		Promoted: true,
	}
	if err := s.replaceFunction(ctx, before, f); err != nil {
		return nil, err
	}
	s.revisions.remember(before.Function, f, "promoted: "+why)
	s.revisions.noteEnd(r.of, f, true, why)
	s.events.decidedDeployment(s.now(), before, f)
	s.metrics.CountRolloutEnd(r.of.full(), promotedOutcome)
	s.decided(r.of, f.Revision, "promoted revision %d: %s", f.Revision, why)
	return f, nil
}

// rollBack removes a candidate. Its function was never touched. After an error, which is logged, it is tried again.
func (s *rollouts) rollBack(ctx context.Context, r *running, cause rollout.Cause, why string) error {
	next := r.split.candidate.Load()
	r.mu.Lock()
	r.doomed, r.cause, r.why = why, cause, "it must be removed, because "+why
	r.mu.Unlock()
	// The end is noted first: a store that has the deployment from kubectl must not begin to roll it out again.
	_, missing := s.find(r.of)
	if missing == nil {
		s.revisions.noteEnd(r.of, next.Function, false, why)
	}
	err := s.removeCandidate(context.WithoutCancel(ctx), r)
	if s.ofFunction(r.of.full()) == r {
		return err // It is still there.
	}
	if missing == nil { // The metrics of a function that is gone went with it.
		s.metrics.CountRolloutEnd(r.of.full(), string(cause))
	}
	s.decided(r.of, r.revision, "rolled back revision %d (image %s): %s", r.revision, next.Deployment.Image, why)
	return err
}

// removeCandidate lets a candidate's requests end, and removes it. After an error, which it logs, the next look tries again.
func (s *rollouts) removeCandidate(ctx context.Context, r *running) error {
	s.of(r.of.full()).CompareAndSwap(r.split, nil)
	for late := time.Now().Add(drainPatience); r.split.outstanding.Load() > 0 && time.Now().Before(late); {
		backoff.Wait(ctx, rolloutPause/10)
	}
	err := s.deleteCandidate(ctx, r)
	if err != nil {
		s.log.Error().Err(err).Str("function", r.of.full()).Msg("a candidate could not be removed")
		r.mu.Lock()
		r.acting, r.again = false, time.Now().Add(removalPause)
		r.mu.Unlock()
	}
	return err
}

// deleteCandidate removes a candidate, unless somebody else has removed or replaced it.
func (s *rollouts) deleteCandidate(ctx context.Context, r *running) error {
	a := r.of.candidate()
	defer s.functionLocks.Lock(a.full())()
	d, err := s.find(a)
	if err != nil || d.Revision != r.revision {
		return nil
	}
	if err := s.store.DeleteFunction(a.namespace, a.name); err != nil && !errors.Is(err, store.ErrAbsent) {
		return fmt.Errorf("function %s was not deleted: %w", d.Name, err)
	}
	return s.end(ctx, d)
}

// endRollout ends the rollout of a function that was deployed or removed otherwise.
func (s *rollouts) endRollout(ctx context.Context, of address, why string) {
	r := s.ofFunction(of.full())
	if r == nil {
		return
	}
	r.mu.Lock()
	acting := r.acting
	r.acting = true
	r.mu.Unlock()
	if !acting {
		_ = s.rollBack(ctx, r, replaced, why) // It logs its error, and it is tried again.
		return
	}
	s.of(of.full()).CompareAndSwap(r.split, nil) // What acts removes the candidate. It gets no more requests.
}

// undo deploys an earlier revision again, at once: that with a number, or for 0 the latest that runs something else.
func (s *rollouts) undo(ctx context.Context, of address, to uint64) (*Function, error) {
	defer s.namespaceLocks.Share(of.namespace)()
	defer s.functionLocks.Lock(of.full())()
	before, err := s.find(of)
	if err != nil {
		return nil, err
	}
	if r := s.ofFunction(of.full()); r != nil && r.revision > before.Revision { // It has not taken over.
		return nil, web.Refuse(http.StatusConflict, "a rollout of function %s is in progress; abort it first: faas-infer rollout abort %s", of.full(), of.name)
	}
	h, err := s.revisions.list(of)
	if err != nil {
		return nil, err
	}
	earlier := earlierRevision(h, before.Function, to)
	switch {
	case earlier == nil && to > 0:
		return nil, web.Refuse(http.StatusNotFound, "revision %d of function %s is not among the latest %d; faas-infer rollout history %s lists them", to, of.full(), maxRevisions, of.name)
	case earlier == nil:
		return nil, web.Refuse(http.StatusConflict, "there is no earlier revision of function %s to go back to", of.full())
	}
	in, err := annotation.ParseStored(earlier.Deployment)
	if err != nil {
		return nil, err
	}
	f, err := s.revise(before, earlier.Deployment, in)
	if err != nil {
		return nil, err
	}
	f.BackTo = earlier.Revision
	if err := s.callers.validate(f); err != nil {
		return nil, err
	}
	if err := s.replaceFunction(ctx, before, f); err != nil {
		return nil, err
	}
	s.revisions.remember(before.Function, f, fmt.Sprintf("revision %d again", earlier.Revision))
	s.fetching.settle(of, nil)
	s.endRollout(ctx, of, fmt.Sprintf("revision %d was deployed again", earlier.Revision))
	s.decided(of, f.Revision, "went back to revision %d (image %s), which is now revision %d", earlier.Revision, f.Deployment.Image, f.Revision)
	return f, nil
}
