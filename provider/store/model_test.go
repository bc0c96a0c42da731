package store

import (
	"errors"
	"maps"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

func TestModels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	want := map[string]Model{"/a": {Stamp: "s", Hash: "h", Prepared: "/p", Preparer: "x"}}
	err := errors.Join(s.PutModel("/a", want["/a"]), s.PutModel("/b", Model{}), s.DeleteModels([]string{"/b", "/absent"}), s.DeleteModels(nil),
		s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketModels).Put([]byte("/c"), []byte("{")) }), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.Models(); err != nil || !maps.Equal(got, want) {
		t.Errorf("Models = %v, %v", got, err)
	}
}

// A file of a version that did not store models.
func TestOpenWithoutModels(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	err := errors.Join(s.PutFunction(function("a", "x")), s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketModels) }), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.Models(); err != nil || len(got) != 0 {
		t.Errorf("Models = %v, %v", got, err)
	}
}
