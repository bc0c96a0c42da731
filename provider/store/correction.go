package store

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/faas-infer/faas-infer/profiler/correction"
)

// PutCorrections stores the corrections of functions' predicted times, by the functions'
// full names: all or none.
func (s *Store) PutCorrections(states map[string]correction.State) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for name, state := range states {
			text, err := json.Marshal(state)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := tx.Bucket(bucketCorrections).Put([]byte(name), text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store: %s: %w", bucketCorrections, err)
	}
	return nil
}

// Correction returns a function's stored correction, ErrAbsent if there is none.
func (s *Store) Correction(function string) (correction.State, error) {
	var state correction.State
	err := s.get(bucketCorrections, []byte(function), &state)
	return state, err
}

// CorrectionNames lists the names under which corrections are stored.
func (s *Store) CorrectionNames() (names []string, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketCorrections).ForEach(func(name, _ []byte) error {
			names = append(names, string(name))
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", bucketCorrections, err)
	}
	return names, nil
}

// DeleteCorrection deletes a function's correction, if there is one.
func (s *Store) DeleteCorrection(function string) error {
	if err := s.delete(bucketCorrections, []byte(function)); err != nil && !errors.Is(err, ErrAbsent) {
		return err
	}
	return nil
}
