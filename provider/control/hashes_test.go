package control

import "testing"

// Hashes has the models of all functions, so that their profiles stay.
func TestHashes(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		r.measured("g", "other")
		if all := Hashes(r.Controller); len(all) != 2 || !all["hash of m"] || !all["hash of other"] {
			t.Errorf("%v", all)
		}
		if err := r.Remove(t.Context(), full("g")); err != nil {
			t.Fatal(err)
		}
		if all := Hashes(r.Controller); len(all) != 1 {
			t.Errorf("%v", all)
		}
	})
}
