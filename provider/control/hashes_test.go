package control

import (
	"errors"
	"testing"
)

// Hashes has the models of all functions, so that their profiles stay.
func TestHashes(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		r.measured("g", "other")
		if all, err := Hashes(r.Controller); err != nil || len(all) != 2 || !all["hash of m"] || !all["hash of other"] {
			t.Errorf("%v, %v", all, err)
		}
		// The profile of a model that cannot be read now must not look unused.
		fail := func(err error) {
			r.models.mu.Lock()
			defer r.models.mu.Unlock()
			r.models.hashFails = err
		}
		fail(errors.New("it was evicted"))
		if all, err := Hashes(r.Controller); err == nil {
			t.Errorf("%v", all)
		}
		fail(nil)
		if err := r.Remove(t.Context(), full("g")); err != nil {
			t.Fatal(err)
		}
		if all, err := Hashes(r.Controller); err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
	})
}
