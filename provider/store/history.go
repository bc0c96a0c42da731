package store

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// PutHistories stores a cold-start policy's histories of idle times, in the policy's own
// form, by the functions' full names: all or none.
func (s *Store) PutHistories(histories map[string][]byte) error {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for name, history := range histories {
			if err := tx.Bucket(bucketHistories).Put([]byte(name), history); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store: %s: %w", bucketHistories, err)
	}
	return nil
}

// History returns a function's stored history, ErrAbsent if there is none.
func (s *Store) History(function string) (history []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		found := tx.Bucket(bucketHistories).Get([]byte(function))
		if found == nil {
			return ErrAbsent
		}
		history = bytes.Clone(found)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: %s %s: %w", bucketHistories, function, err)
	}
	return history, nil
}

// DeleteHistory deletes a function's history, if there is one.
func (s *Store) DeleteHistory(function string) error {
	if err := s.delete(bucketHistories, []byte(function)); err != nil && !errors.Is(err, ErrAbsent) {
		return err
	}
	return nil
}
