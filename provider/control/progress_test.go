package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/latency"
)

// A model for which another measurement would fail, too, is measured once. Its function answers with
// the reason until the file changes. Others do not wait for it.
func TestHopelessModelsAreMeasuredOnce(t *testing.T) {
	try(t, func(r *rig) {
		r.models.fail(latency.Permanent(errors.New("the model takes too long: use a smaller one")))
		r.deploy("f", "m")
		problem := func() string {
			s, _ := r.Status(full("f"))
			return s.Problem
		}
		r.until("a problem", func() bool { return problem() != "" })
		const want = "the model cannot be served: the model takes too long: use a smaller one"
		if got := problem(); got != want {
			t.Errorf("the problem is %q, want %q", got, want)
		}
		if _, err := r.invoke("f", "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a request gets %v", err)
		}
		if s, _ := r.Status(full("f")); s.Progress != "" {
			t.Errorf("it is refused, and %q", s.Progress)
		}
		time.Sleep(time.Hour)
		if now := r.models.tried(); now != 1 {
			t.Errorf("it was measured %d times within an hour", now)
		}
		r.models.fail(nil)
		r.measured("g", "n")
		r.models.mu.Lock()
		r.models.edition = "another "
		r.models.mu.Unlock()
		time.Sleep(pause(maxFailures))
		r.until("the changed file to be served", func() bool { return r.describe("f").Measured })
	})
}

// The description says since when a model is measured and behind which one it waits.
func TestStatusSaysForWhatAModelWaits(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "m")
		time.Sleep(100 * time.Millisecond)
		since := time.Now().Add(-100 * time.Millisecond).UTC().Format("15:04:05 UTC")
		r.deploy("g", "n")
		time.Sleep(100 * time.Millisecond)
		for name, want := range map[string]string{
			"f": "the model is being measured since " + since, "g": "the model waits, behind that of " + full("f") + ", which is being measured since " + since,
		} {
			if s, _ := r.Status(full(name)); !strings.HasPrefix(s.Progress, want) || s.Problem != "" {
				t.Errorf("%s: %q, want %q; the problem is %q", name, s.Progress, want, s.Problem)
			}
		}
		r.until("both to be measured", func() bool { return r.describe("f").Measured && r.describe("g").Measured })
		if s, _ := r.Status(full("g")); s.Progress != "" {
			t.Errorf("it is known, and %q", s.Progress)
		}
	})
}

// The status says how much of its model each starting instance has. While an instance serves, that is no progress that
// requests wait for.
func TestStatusSaysHowMuchArrives(t *testing.T) {
	const arriving = "the model is being sent: pod f-1 has 212 of 553 MB"
	const unprepared = "the model is sent to instances only, on node n: no room"
	with := func(o *Options) {
		o.Arriving = func(string) string { return arriving }
		o.Unprepared = func(string) string { return unprepared }
	}
	tryWith(t, with, func(r *rig) {
		r.measured("f", "m")
		if s, _ := r.Status(full("f")); s.Arriving != arriving || s.Progress != arriving || s.Plan != unprepared {
			t.Errorf("without an instance: %q, %q", s.Arriving, s.Progress)
		}
		if _, err := r.invoke("f", "x"); err != nil {
			t.Fatal(err)
		}
		if s, _ := r.Status(full("f")); s.AvailableReplicas == 0 || s.Arriving != arriving || s.Progress != "" {
			t.Errorf("with %d instances: %q, %q", s.AvailableReplicas, s.Arriving, s.Progress)
		}
	})
}
