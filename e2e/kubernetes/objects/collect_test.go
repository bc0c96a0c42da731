package objects

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/objects"
	"github.com/faas-infer/faas-infer/provider/store"
)

// Profiles of models that no function has for long go; those of models in use and the operators'
// stay.
func TestUnusedProfilesAreCollected(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	s, err := objects.OpenHistoryStore(ctx, clientOf(t, cluster.Config()), "openfaas", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer cancel()
	p := &profiler.Profile{Model: "m", Measurements: []profiler.Measurement{{Batch: 1, Threads: 1, Median: 560, Runs: 1}}}
	const old, used = "old engine machine b≤32", "used engine machine b≤32"
	if err := errors.Join(s.PutProfile(old, p), s.PutProfile(used, p)); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "", "create", "configmap", "operators", "-n", "openfaas", "--from-literal=a=b")
	kubectl(t, "", "label", "configmap", "operators", "-n", "openfaas", objects.OperatorsLabel+"=true", objects.KindLabel+"=profile")
	eventually(t, func() string {
		if all, err := s.ProfilesOf("used"); err != nil || len(all) != 1 {
			return "the profile is not there yet"
		}
		if _, err := s.Profile(old); err != nil {
			return err.Error()
		}
		return ""
	})
	inUse := func(hash string) bool { return hash == "used" }
	for _, later := range []time.Duration{time.Hour, 29 * 24 * time.Hour} {
		if err := s.Collect(t.Context(), inUse, time.Now().Add(later)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Profile(old); err != nil {
			t.Errorf("after %v: %v", later, err)
		}
	}
	if err := s.Collect(t.Context(), inUse, time.Now().Add(31*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if _, err := s.Profile(old); !errors.Is(err, store.ErrAbsent) {
			return "the unused one is there"
		}
		return ""
	})
	if _, err := s.Profile(used); err != nil {
		t.Error(err)
	}
	kubectl(t, "", "delete", "configmap", "operators", "-n", "openfaas")
	kubectl(t, "", "delete", "configmap", "-n", "openfaas", "-l", objects.KindLabel+"=profile") // Other tests look for theirs.
}
