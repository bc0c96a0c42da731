package store

import (
	"encoding/json"
	"fmt"

	"go.etcd.io/bbolt"
)

// Model is what is known of a model file, so that a restart need not read the file. It can
// always be found out again.
type Model struct {
	// Stamp changes when the file is changed. Hash is the hash of the model at that Stamp.
	Stamp string `json:"stamp"`
	Hash  string `json:"hash"`
	// Prepared is the directory of the prepared model for Sizes, which are the flags of its free dimensions'
	// sizes; Preparer identifies what prepared it.
	Prepared string `json:"prepared"`
	Sizes    string `json:"sizes,omitempty"`
	Preparer string `json:"preparer"`
}

// PutModel stores what is known of a model file under its path.
func (s *Store) PutModel(file string, m Model) error { return s.put(bucketModels, []byte(file), m) }

// Models returns what is known of all model files, by path. It leaves out records that it
// cannot read.
func (s *Store) Models() (map[string]Model, error) {
	all := map[string]Model{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketModels).ForEach(func(file, text []byte) error {
			var m Model
			if json.Unmarshal(text, &m) == nil {
				all[string(file)] = m
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("store: %s: %w", bucketModels, err)
	}
	return all, nil
}

// DeleteModels deletes what is known of model files.
func (s *Store) DeleteModels(files []string) error {
	if len(files) == 0 {
		return nil
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, file := range files {
			if err := tx.Bucket(bucketModels).Delete([]byte(file)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store: %s: %w", bucketModels, err)
	}
	return nil
}
