package store

import (
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/bbolt"
)

// Namespace is the record of one namespace of functions.
type Namespace struct {
	// Name is a DNS label.
	Name string `json:"name"`
	// Labels and Annotations are the user's. The provider does not read them.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	// CreatedAt does not change with updates.
	CreatedAt time.Time `json:"createdAt"`
}

// bucketNamespaces holds namespaces by name. A namespace's functions are found by their
// own keys.
var bucketNamespaces = []byte("namespaces")

// PutNamespace writes n under its name and replaces an earlier record. It returns once
// the file is on the disk.
func (s *Store) PutNamespace(n Namespace) error { return s.put(bucketNamespaces, []byte(n.Name), n) }

// DeleteNamespace deletes a namespace, but not its functions; ErrAbsent if there is none.
func (s *Store) DeleteNamespace(name string) error {
	return s.delete(bucketNamespaces, []byte(name))
}

// CheckDeleteNamespace returns ErrAbsent if there is no such namespace. Every other namespace may
// be deleted.
func (s *Store) CheckDeleteNamespace(name string) error {
	_, err := s.Namespace(name)
	return err
}

// Namespace returns one namespace; ErrAbsent if there is none.
func (s *Store) Namespace(name string) (Namespace, error) {
	var n Namespace
	err := s.get(bucketNamespaces, []byte(name), &n)
	return n, err
}

// Namespaces lists the namespaces, sorted by name.
func (s *Store) Namespaces() ([]Namespace, error) {
	out := []Namespace{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketNamespaces).ForEach(func(k, v []byte) error {
			var n Namespace
			if err := json.Unmarshal(v, &n); err != nil {
				return fmt.Errorf("namespace %q: %w", k, err)
			}
			out = append(out, n)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return out, nil
}
