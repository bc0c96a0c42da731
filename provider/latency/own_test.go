package latency_test

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// A profile of an earlier version gets what an instance has to itself, and keeps its times. Of a model
// whose times cannot be sketched it stays as it is.
func TestOwnOfEarlierProfiles(t *testing.T) {
	r, f := newRig(true), function(time.Second, 8)
	earlier := profile(8, time.Second, 1, true)
	earlier.Layers = []byte(`{}`)
	r.put(f, earlier)
	served := *earlier
	served.Mapped = profiler.Mapped{File: "w", Bytes: 100 << 20}
	if _, err := r.Own(t.Context(), f, "m", &served); err == nil || r.stored(f).Own != 0 {
		t.Errorf("without a sketch: %v", err)
	}
	r.models.sketch, r.models.own = 1, 5<<20
	with, err := r.Own(t.Context(), f, "m", &served)
	if err != nil || with.Own != 5<<20 || with.Mapped != served.Mapped || latency.OwnUnknown(f, with) {
		t.Errorf("%+v, %v", with, err)
	}
	stored := r.stored(f)
	if did := r.models.did(); did != "[sketch]" || stored.Own != 5<<20 || stored.Mapped.Bytes != 0 || len(stored.Measurements) != len(earlier.Measurements) || string(stored.Layers) != "{}" {
		t.Errorf("%s: stored %+v", did, stored)
	}
	r.leading, earlier.Own = false, 0
	r.put(f, earlier)
	if _, err := r.Own(t.Context(), f, "m", &served); err != nil || r.stored(f).Own != 0 {
		t.Errorf("a replica that follows stores it: %v", err)
	}
}

func TestOwnUnknown(t *testing.T) {
	mapped := profiler.Mapped{File: "w", Bytes: 1}
	for _, c := range []struct {
		p       profiler.Profile
		limit   int64
		device  string
		unknown bool
	}{
		{profiler.Profile{Mapped: mapped}, 0, "", true},
		{profiler.Profile{Mapped: mapped, Own: 1}, 0, "", false},
		{profiler.Profile{}, 0, "", false},
		{profiler.Profile{Mapped: mapped, Parts: 2}, 0, "", false},
		{profiler.Profile{Mapped: mapped}, 1 << 30, "", false},
		{profiler.Profile{Mapped: mapped}, 0, annotation.DeviceCUDA, false},
	} {
		f := function(time.Second, 8)
		f.Inference.Limits.Memory, f.Inference.Device = c.limit, c.device
		if latency.OwnUnknown(f, &c.p) != c.unknown {
			t.Errorf("%+v, limit %d, %q: not %v", c.p, c.limit, c.device, c.unknown)
		}
	}
}
