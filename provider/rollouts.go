package provider

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/rollout"
	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// rolloutPause is the time between two looks at the rollouts.
	rolloutPause = 100 * time.Millisecond
	// handOverPatience is how long a candidate stays, after its deployment took over, until the new instances answer.
	handOverPatience = time.Minute
	// drainPatience is how long the requests that a candidate has may take before it is removed.
	drainPatience = 2 * time.Second
	// orphanPatience is how long a candidate stays whose function is not there.
	orphanPatience = 10 * time.Second
	// removalPause is the time between two tries to remove a candidate.
	removalPause = 5 * time.Second
)

// The causes of removals that are not the candidate's own. A user aborted its rollout, another deployment of the function came,
// or the store did not take its deployment.
const (
	aborted  rollout.Cause = "aborted"
	replaced rollout.Cause = "replaced"
	refused  rollout.Cause = "refused"
)

// promotedOutcome is how a rollout ends in the metrics that took over.
const promotedOutcome = "promoted"

// rolloutHost is what rollouts need of the server.
type rolloutHost interface {
	find(a address) (*deployed, error)
	findOrAdopt(ctx context.Context, a address, patience time.Duration) (*deployed, error)
	statusOf(d *deployed) Status
	revise(before *deployed, d types.FunctionDeployment, in annotation.Inference) (*Function, error)
	replaceFunction(ctx context.Context, before *deployed, f *Function) error
	end(ctx context.Context, d *deployed) error
}

// rollouts carries out the gradual rollouts that are in progress.
type rollouts struct {
	rolloutHost
	store                         Store
	controller                    Controller
	callers                       *callers
	events                        eventRoutes
	arriving                      *arrivals
	missing                       func(function string) bool
	fetching                      *fetching
	inFlight                      *web.Gate
	namespaceLocks, functionLocks *web.KeyedMutex
	revisions                     revisions
	replicas                      otherReplicas
	metrics                       *metrics.Metrics
	now                           func() time.Time
	log                           zerolog.Logger

	mu sync.Mutex
	// splits has a pointer for each function, by its full name, which its [deployed] share. running has the
	// rollouts, by the full name of the function.
	splits  map[string]*atomic.Pointer[split]
	running map[string]*running
}

// connect gives rollouts what they need of the server.
func (r *rollouts) connect(s *Server, peers RolloutPeers, kept RevisionStore) {
	r.replicas = otherReplicas{peers}
	r.rolloutHost, r.store, r.controller, r.callers, r.events, r.arriving = s, s.store, s.controller, &s.callers, s.events, &s.arriving
	r.inFlight, r.namespaceLocks, r.functionLocks, r.now, r.log = s.inFlight, &s.namespaceLocks, &s.functionLocks, s.now, s.log
	r.fetching, r.metrics = &s.fetching, s.metrics
	r.missing = func(function string) bool { return s.restored.isMissing(function) }
	r.revisions.log, r.revisions.now = s.log, s.now
	if r.revisions.store = kept; kept != nil {
		return
	}
	if r.revisions.store, _ = s.store.(RevisionStore); r.revisions.store == nil {
		r.revisions.store = &memoryRollouts{}
	}
}

// running is one rollout.
type running struct {
	of    address
	split *split

	mu       sync.Mutex
	plan     rollout.Plan
	state    rollout.State
	revision uint64 // the candidate's
	// why is what the rollout waits for. acting: a promotion or a removal is in progress.
	why    string
	acting bool
	// doomed is why the candidate must be removed, with its cause, "" for nothing: the removal is tried again until it succeeds. again is
	// when the next try is due after one that failed.
	doomed string
	cause  rollout.Cause
	again  time.Time
	// orphan is since when the function is not there, zero for not.
	orphan time.Time
	// others are the counts of the other replicas, and stand is what the leader said last, if this one follows.
	others replicaTallies
	stand  followed
}

// candidate is the address of the function that runs a's candidate.
func (a address) candidate() address { return address{a.name + CandidateSuffix, a.namespace} }

// candidateOf reports whether d is a candidate, and of which function. The name alone does not say so: earlier versions
// and kubectl allow it for a user's function.
func (d *deployed) candidateOf() (of address, is bool) {
	name, is := strings.CutSuffix(d.Deployment.Service, CandidateSuffix)
	return address{name, d.Deployment.Namespace}, is && name != "" && d.Inference.Canary.Gradual
}

// callable refuses calls of candidates: what guards their function must count them all.
func (d *deployed) callable() error {
	if of, is := d.candidateOf(); is {
		return web.Refuse(http.StatusNotFound, "%s is the candidate of function %s; call that with the header %s: always",
			d.Deployment.Service, of.name, canaryHeader)
	}
	return nil
}

func (d *deployed) address() address {
	return address{d.Deployment.Service, d.Deployment.Namespace}
}

// of returns the pointer to a function's split.
func (r *rollouts) of(name string) *atomic.Pointer[split] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pointer(name)
}

func (r *rollouts) pointer(name string) *atomic.Pointer[split] {
	p := r.splits[name]
	if p == nil {
		if r.splits == nil {
			r.splits, r.running = map[string]*atomic.Pointer[split]{}, map[string]*running{}
		}
		p = new(atomic.Pointer[split])
		r.splits[name] = p
	}
	return p
}

// published begins a rollout if d is a candidate, or goes on with the one that it is of.
func (r *rollouts) published(d *deployed) {
	of, is := d.candidateOf()
	if !is {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pointer(of.full())
	if before := r.running[of.full()]; before != nil && before.revision == d.Revision {
		before.split.candidate.Store(d)
		return
	}
	x := &split{}
	x.candidate.Store(d)
	r.running[of.full()] = &running{of: of, split: x, plan: planOfRollout(d.Inference.Canary), state: rollout.Begin(time.Now()), revision: d.Revision}
	p.Store(x)
}

// withdrawn ends the rollout of a candidate that is gone.
func (r *rollouts) withdrawn(d *deployed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of, is := d.candidateOf(); is {
		r.pointer(of.full()).Store(nil)
		delete(r.running, of.full())
		r.metrics.HideCandidateShare(of.full())
	}
	if r.running[d.Name] == nil {
		delete(r.splits, d.Name)
	}
}

// ofFunction returns the rollout of a function, nil if there is none.
func (r *rollouts) ofFunction(name string) *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[name]
}

func (r *rollouts) all() []*running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.running))
}

// planOfRollout is what a deployment asks for.
func planOfRollout(c annotation.Canary) rollout.Plan {
	c = c.Completed()
	return rollout.Plan{Steps: c.Shares(), Mirror: c.Mirror, Margin: c.Margin / 100, MaxDifferent: c.Different / 100, Patience: c.Timeout}
}

// FollowRollouts promotes candidates and rolls them back until ctx ends.
func FollowRollouts(ctx context.Context, s *Server) {
	var work sync.WaitGroup
	defer work.Wait()
	for backoff.Wait(ctx, rolloutPause) {
		all := s.rollouts.all()
		s.rollouts.replicas.exchange(ctx, all)
		for _, r := range all {
			s.rollouts.look(ctx, r, time.Now(), &work)
			r.showShare(&s.rollouts)
		}
	}
}

// look decides about one rollout, and lets work carry out what takes longer.
func (s *rollouts) look(ctx context.Context, r *running, now time.Time, work *sync.WaitGroup) {
	next := r.split.candidate.Load()
	status := s.statusOf(next)
	present, missing := s.find(r.of)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.acting || now.Before(r.again) {
		return
	}
	if r.doomed != "" {
		r.acting = true
		cause, why := r.cause, r.doomed
		work.Go(func() { _ = s.rollBack(ctx, r, cause, why) }) // It logs its error.
		return
	}
	ready := status.AvailableReplicas > 0
	if !s.replicas.leads() {
		r.follow(ready, now)
		return
	}
	seen := r.tally().seen()
	r.lead(seen, now)
	if s.overtaken(ctx, r, present, missing != nil, now, work) {
		return
	}
	if seen.Ready = ready; !ready && !status.Slight {
		seen.Problem, seen.NoRoom = status.Problem, lacksRoom(s.controller, next.Name)
	}
	state, action := r.state.Decide(r.plan, seen, now)
	r.state, r.why = state, action.Why
	r.split.apply(state, r.plan, seen.Ready)
	switch action.Kind {
	case rollout.Advance:
		s.decided(r.of, r.revision, "revision %d: %s", r.revision, action.Why)
	case rollout.Promote:
		r.acting = true
		work.Go(func() { _ = s.promote(ctx, r, action.Why) })
	case rollout.RollBack:
		r.acting = true
		r.split.apply(state, rollout.Plan{}, false) // It gets no more requests from now on.
		work.Go(func() { _ = s.rollBack(ctx, r, action.Cause, action.Why) })
	}
}

// showShare records the share of the candidate while it is there.
func (r *running) showShare(all *rollouts) {
	function := r.of.full()
	if p := all.progress(function); p != nil {
		all.metrics.SetCandidateShare(function, float64(p.Share)/100)
	}
	if all.ofFunction(function) == nil { // It was removed meanwhile.
		all.metrics.HideCandidateShare(function)
	}
}

// lacksRoom reports whether no node has room for an instance of a function.
func lacksRoom(controller Controller, name string) bool {
	c, ok := controller.(WatchedController)
	if !ok {
		return false
	}
	now, known := c.Watch(name)
	return known && now.Lack == LackRoom
}

// overtaken ends a rollout whose function is gone or has another revision, and reports whether it does. The rollout's lock
// is held.
func (s *rollouts) overtaken(ctx context.Context, r *running, present *deployed, missing bool, now time.Time, work *sync.WaitGroup) bool {
	if !missing || s.arriving.find(r.of.full()) != nil || s.missing(r.of.full()) {
		r.orphan = time.Time{}
	} else if r.orphan.IsZero() {
		r.orphan = now
	} else if now.Sub(r.orphan) > orphanPatience {
		r.acting = true
		work.Go(func() { _ = s.rollBack(ctx, r, replaced, "its function is gone") }) // It logs its error.
		return true
	}
	switch {
	case missing || present.Revision < r.revision:
		return false
	case present.Revision == r.revision: // A restart came between the promotion and the removal, or another replica promoted it.
		r.acting = true
		work.Go(func() {
			s.awaitHandOver(ctx, r, r.revision)
			_ = s.removeCandidate(ctx, r) // It logs its error.
		})
	default:
		r.acting = true
		why := fmt.Sprintf("revision %d was deployed without a gradual rollout", present.Revision)
		work.Go(func() { _ = s.rollBack(ctx, r, replaced, why) }) // It logs its error.
	}
	return true
}

// decided adds a sentence about a rollout to the decisions about its function.
func (s *rollouts) decided(of address, revision uint64, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.events.log.Add(s.now(), of.full(), decisions.Rollout, decisions.Fields{Revision: revision, Detail: text})
	s.log.Info().Str("function", of.full()).Uint64("revision", revision).Msg(text)
}
