package store

import (
	"errors"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/faas-infer/faas-infer/profiler/correction"
)

func TestCorrections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	if _, err := s.Correction("a.b"); !errors.Is(err, ErrAbsent) {
		t.Errorf("absent: %v", err)
	}
	if err := s.DeleteCorrection("a.b"); err != nil {
		t.Errorf("delete what is absent: %v", err)
	}
	want := correction.State{Profile: "p", Classes: []correction.Class{{Millicores: 1000, Largest: 4, Factor: 1.5, First: 7, Weights: []float64{1, 0.5}, Seen: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}}}
	err := errors.Join(s.PutCorrections(map[string]correction.State{"a.b": want, "c.d": {}}), s.PutCorrections(nil), s.DeleteCorrection("c.d"), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.Correction("a.b"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Correction = %+v, %v", got, err)
	}
	if names, err := s.CorrectionNames(); err != nil || !reflect.DeepEqual(names, []string{"a.b"}) {
		t.Errorf("CorrectionNames = %q, %v", names, err)
	}
	if _, err := s.Correction("c.d"); !errors.Is(err, ErrAbsent) {
		t.Errorf("deleted: %v", err)
	}
}

// A file of a version that did not store corrections.
func TestOpenWithoutCorrections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	err := errors.Join(s.PutFunction(function("a", "x")), s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketCorrections) }), s.Close())
	if err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if names := list(t, s, ""); names != "a/x" {
		t.Errorf("functions %q", names)
	}
	if _, err := s.Correction("a.b"); !errors.Is(err, ErrAbsent) {
		t.Errorf("Correction: %v", err)
	}
}
