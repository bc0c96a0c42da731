package store

import (
	"errors"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

func TestHistories(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	if _, err := s.History("a.b"); !errors.Is(err, ErrAbsent) {
		t.Errorf("absent: %v", err)
	}
	if err := s.DeleteHistory("a.b"); err != nil {
		t.Errorf("delete what is absent: %v", err)
	}
	err := errors.Join(s.PutHistories(map[string][]byte{"a.b": {1, 0, 2}, "c.d": {3}}), s.PutHistories(nil), s.DeleteHistory("c.d"), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.History("a.b"); err != nil || string(got) != "\x01\x00\x02" {
		t.Errorf("History = %v, %v", got, err)
	}
	if _, err := s.History("c.d"); !errors.Is(err, ErrAbsent) {
		t.Errorf("deleted: %v", err)
	}
}

// A file of a version that did not store histories.
func TestOpenWithoutHistories(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	err := errors.Join(s.PutFunction(function("a", "x")), s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketHistories) }), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if names := list(t, s, ""); names != "a/x" {
		t.Errorf("functions %q", names)
	}
	if err := s.PutHistories(map[string][]byte{"a.x": {1}}); err != nil {
		t.Error(err)
	}
}
