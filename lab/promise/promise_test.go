package promise

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/sim"
)

// One request of four is late for half a second, and again later for a second with a pause of a quarter.
func TestViolations(t *testing.T) {
	j := judged{percentile: 99}
	for at := time.Duration(0); at < 10*time.Second; at += 5 * time.Millisecond {
		second := at.Seconds()
		bad := second >= 2 && second < 2.5 || second >= 5 && second < 6 && !(second >= 5.25 && second < 5.5)
		j.add(sim.Outcome{Arrived: at, InTime: !bad || at/(5*time.Millisecond)%4 != 0})
	}
	j.add(sim.Outcome{Arrived: time.Second, Cold: true})
	j.violations()
	if j.first != 500*time.Millisecond || j.longest != time.Second || j.behind != 1500*time.Millisecond {
		t.Errorf("violations of %v, %v and %v", j.first, j.longest, j.behind)
	}
	if j.all != 2000 || j.cold != 1 {
		t.Errorf("%+v", j)
	}
}

// valueOf returns a result, and fails the test if there is none of that name.
func valueOf(t *testing.T, r *report.Report, name string) float64 {
	t.Helper()
	for _, x := range r.Results {
		if x.Name == name {
			return x.Value
		}
	}
	t.Fatalf("there is no result %s in %+v", name, r.Results)
	return 0
}

// A prediction of half the real times breaks the promise without steering. The provider and the clairvoyant
// plan keep it, and the latter holds fewer cores.
func TestWays(t *testing.T) {
	r, err := Run(t.Context(), Bench{
		Requests: 5000, Percentiles: []float64{99}, Only: "^predicted_half$", Ways: []string{"cop", product}, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	cop, ours := valueOf(t, r, "kept_pct.cop.p99.predicted_half"), valueOf(t, r, "kept_pct."+product+".p99.predicted_half")
	if cop > 90 || ours < 95 {
		t.Errorf("kept %v %% and %v %%", cop, ours)
	}
	if over := valueOf(t, r, "cores_over_clairvoyant."+product+".p99.predicted_half"); over < 0.8 || over > 3 {
		t.Errorf("%v times the cores of the clairvoyant plan", over)
	}
	if _, err := Run(t.Context(), Bench{Requests: 1000, Only: "nothing"}); err == nil {
		t.Error("no scenario is no error")
	}
}

// A burst comes every ten seconds. The credit pays for releases now and then only, and the promise is kept.
func TestReleasesKeepThePromise(t *testing.T) {
	r, err := Run(t.Context(), Bench{
		Requests: 2000, Least: 2 * time.Minute, Percentiles: []float64{99}, Only: "^bursts.dssm", Ways: []string{product}, Seed: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	if kept := valueOf(t, r, "kept_pct."+product+".p99.bursts.dssm.json"); kept < 99 {
		t.Errorf("kept %v %%", kept)
	}
}
