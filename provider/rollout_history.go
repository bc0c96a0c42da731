package provider

import (
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// maxRevisions is the number of a function's revisions that are remembered.
const maxRevisions = 10

// RevisionStore remembers the revisions of functions. Anything that a store does not find is empty.
type RevisionStore interface {
	PutRollouts(namespace, name string, r store.Rollouts) error
	Rollouts(namespace, name string) (store.Rollouts, error)
	DeleteRollouts(namespace, name string) error
}

// memoryRollouts remembers revisions until the provider restarts, for stores that do not.
type memoryRollouts struct{ sync.Map }

// PutRollouts implements RevisionStore.
func (m *memoryRollouts) PutRollouts(namespace, name string, r store.Rollouts) error {
	m.Store(FullName(name, namespace), r)
	return nil
}

// Rollouts implements RevisionStore.
func (m *memoryRollouts) Rollouts(namespace, name string) (store.Rollouts, error) {
	r, _ := m.Load(FullName(name, namespace))
	known, _ := r.(store.Rollouts)
	return known, nil
}

// DeleteRollouts implements RevisionStore.
func (m *memoryRollouts) DeleteRollouts(namespace, name string) error {
	m.Delete(FullName(name, namespace))
	return nil
}

// revisions remembers the revisions of functions, and how their latest rollouts ended.
type revisions struct {
	store RevisionStore
	// locks locks by function.
	locks web.KeyedMutex
	now   func() time.Time
	log   zerolog.Logger
}

// remember adds a revision to those of its function. before is nil for the first.
func (s *revisions) remember(before, f *Function, how string) {
	s.change(f.Deployment.Namespace, f.Deployment.Service, func(h *store.Rollouts) {
		if len(h.Revisions) == 0 && before != nil { // An earlier version of the provider deployed it.
			h.Revisions = append(h.Revisions, store.Revision{Revision: before.Revision, At: before.CreatedAt, Deployment: before.Deployment, How: "deployed"})
		}
		if slices.ContainsFunc(h.Revisions, func(r store.Revision) bool { return r.Revision == f.Revision }) {
			return
		}
		h.Revisions = append(h.Revisions, store.Revision{Revision: f.Revision, At: s.now().UTC(), Deployment: f.Deployment, How: how})
		h.Revisions = h.Revisions[max(0, len(h.Revisions)-maxRevisions):]
	})
}

// noteEnd remembers how a rollout ended. What was rolled back is not tried again.
func (s *revisions) noteEnd(of address, f *Function, promoted bool, why string) {
	s.noteEndOf(of, f, promoted, store.Hash(runs(f.Deployment)), why)
}

// noteEndOf is noteEnd. With the hash "" the same may be tried again.
func (s *revisions) noteEndOf(of address, f *Function, promoted bool, hash, why string) {
	s.change(of.namespace, of.name, func(h *store.Rollouts) {
		if l := h.Last; l != nil && l.Revision == f.Revision && l.Why == why { // A removal is tried again.
			return
		}
		h.Last = &store.RolloutEnd{Revision: f.Revision, Image: f.Deployment.Image, At: s.now().UTC(),
			Hash: hash, Promoted: promoted, Why: why}
	})
}

// change changes what is remembered of a function. An error is logged: the function serves without it.
func (s *revisions) change(namespace, name string, change func(h *store.Rollouts)) {
	defer s.locks.Lock(FullName(name, namespace))()
	h, err := s.store.Rollouts(namespace, name)
	if err == nil {
		change(&h)
		err = s.store.PutRollouts(namespace, name, h)
	}
	if err != nil {
		s.log.Error().Err(err).Str("function", FullName(name, namespace)).Msg("the history of a function's revisions was not stored")
	}
}

// list returns what is remembered of a function.
func (s *revisions) list(of address) (store.Rollouts, error) {
	return s.store.Rollouts(of.namespace, of.name)
}

// last returns how the latest gradual rollout of a function ended, nil if none has.
func (s *revisions) last(of address) *store.RolloutEnd {
	if l, quick := s.store.(interface {
		LastRollout(namespace, name string) *store.RolloutEnd
	}); quick {
		return l.LastRollout(of.namespace, of.name)
	}
	h, _ := s.list(of) // An error of the disk is reported elsewhere.
	return h.Last
}

// forget removes what is remembered of a function.
func (s *revisions) forget(of address) {
	defer s.locks.Lock(of.full())()
	if err := s.store.DeleteRollouts(of.namespace, of.name); err != nil {
		s.log.Error().Err(err).Str("function", of.full()).Msg("the history of a function's revisions was not deleted")
	}
}

// earlierRevision finds the revision to go back to, nil if there is none.
func earlierRevision(h store.Rollouts, now *Function, to uint64) *store.Revision {
	for i := len(h.Revisions) - 1; i >= 0; i-- {
		r := &h.Revisions[i]
		if to > 0 && r.Revision == to || to == 0 && r.Revision < now.Revision && store.Hash(runs(r.Deployment)) != store.Hash(runs(now.Deployment)) {
			return r
		}
	}
	return nil
}
