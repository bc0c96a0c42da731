package store

import (
	"errors"
	"time"

	"github.com/openfaas/faas-provider/types"
)

// Rollouts is what is remembered of a function's revisions and of how they took over.
type Rollouts struct {
	// Revisions are the latest ones, the newest last.
	Revisions []Revision `json:"revisions"`
	// Last is how the latest gradual rollout ended, nil if none has.
	Last *RolloutEnd `json:"last,omitempty"`
}

// Revision is a revision that was deployed.
type Revision struct {
	Revision   uint64                   `json:"revision"`
	At         time.Time                `json:"at"`
	Deployment types.FunctionDeployment `json:"deployment"`
	// How says how it came: a clause for people.
	How string `json:"how"`
}

// RolloutEnd is the end of a gradual rollout.
type RolloutEnd struct {
	Revision uint64    `json:"revision"`
	Image    string    `json:"image"`
	At       time.Time `json:"at"`
	// Hash identifies what the revision was to run, without what its deployment says of its rollout.
	Hash string `json:"hash,omitempty"`
	// Promoted: the revision took over. Otherwise it was removed.
	Promoted bool `json:"promoted"`
	// Why is the reason, a clause for people.
	Why string `json:"why"`
}

// PutRollouts stores what is remembered of a function's revisions.
func (s *Store) PutRollouts(namespace, name string, r Rollouts) error {
	return s.put(bucketRollouts, functionKey(namespace, name), r)
}

// Rollouts returns what is remembered of a function's revisions, nothing if that is not stored.
func (s *Store) Rollouts(namespace, name string) (r Rollouts, err error) {
	if err = s.get(bucketRollouts, functionKey(namespace, name), &r); errors.Is(err, ErrAbsent) {
		err = nil
	}
	return r, err
}

// DeleteRollouts forgets a function's revisions.
func (s *Store) DeleteRollouts(namespace, name string) error {
	if err := s.delete(bucketRollouts, functionKey(namespace, name)); err != nil && !errors.Is(err, ErrAbsent) {
		return err
	}
	return nil
}
