package baselines

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// BATCH §V and §VI-D: the optimiser runs each hour, for the requests of the hour before. In the
// first hour it runs when the window has doubled.
func TestSection6HourlyWindow(t *testing.T) {
	u := system(t, BatchPublished).Tuner(systems.Function{SLO: 200 * ms, Percentile: 95, MaxBatch: 8}, model)
	start := time.Unix(1000, 0)
	var chosen []time.Duration
	var quiet capacity.Candidate
	var list []capacity.Candidate
	for at := time.Duration(0); at <= 3*time.Hour; at += time.Second {
		gap := time.Second
		if at >= 90*time.Minute {
			gap = 10 * ms // More requests change nothing until the hour is over.
		}
		for sub := time.Duration(0); sub < time.Second; sub += gap {
			u.Arrived(start.Add(at + sub))
		}
		if x := u.Begin(start.Add(at), 1/gap.Seconds()); x != nil {
			chosen = append(chosen, at)
			x.Run()
			list, _ = x.Take()
		}
		if at == 110*time.Minute || at == 130*time.Minute {
			if len(list) != 1 || at > 2*time.Hour && list[0] == quiet {
				t.Fatalf("after %v: %+v, before %+v", at, list, quiet)
			}
			quiet = list[0]
		}
	}
	want := []time.Duration{0, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 7200, 10800}
	if len(chosen) != len(want) {
		t.Fatalf("chosen after %v", chosen)
	}
	for i, w := range want {
		if chosen[i] != w*time.Second {
			t.Errorf("choice %d is after %v, not %v s", i, chosen[i], int(w))
		}
	}
	if u.Instances() != 0 {
		t.Error("instances are bounded")
	}
}

// Without requests in an hour the choice stays.
func TestHourWithoutRequests(t *testing.T) {
	u := system(t, BatchPublished).Tuner(systems.Function{SLO: 200 * ms}, model)
	start := time.Unix(1000, 0)
	x := u.Begin(start, 0)
	x.Run()
	x.Take()
	u.Arrived(start)
	for at := time.Second; at < 5*time.Hour; at += time.Minute {
		if x := u.Begin(start.Add(at), 0); x != nil {
			t.Fatalf("a choice after %v", at)
		}
	}
}

// BATCH §III-A: times between and at the measured rows are those of a polynomial.
func TestSection3Regression(t *testing.T) {
	r, worst := regressed(model), 0.0
	for _, c := range model.Configs() {
		for b := 1; b <= c.Batch; b++ {
			was, _ := model.Exec(c, b)
			got, ok := r.Exec(c, b)
			if !ok || got <= 0 {
				t.Fatalf("%+v, a batch of %d: %v", c, b, got)
			}
			worst = max(worst, math.Abs(got.Seconds()/was.Seconds()-1))
		}
	}
	if worst == 0 || worst > 0.6 {
		t.Errorf("the worst estimate is %.0f %% off", 100*worst)
	}
	if _, ok := r.Exec(cluster.Config{Resources: cluster.Resources{CPU: 1000}}, 100); ok || r.Spread() != 0 {
		t.Error("a time that the model has not, or a spread")
	}
}
