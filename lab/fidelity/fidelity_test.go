package fidelity

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const ms = time.Millisecond

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exact has executions of 5 ms for all batches.
type exact struct{}

func (exact) Exec(cluster.Config, int) (time.Duration, bool)    { return 5 * ms, true }
func (exact) Factor(*rand.Rand) float64                         { return 1 }
func (exact) Quota(cluster.Config) (part, period time.Duration) { return 0, 0 }

// history returns a provider's times of a model that takes 5 ms.
func history() *promised {
	p := &profiler.Profile{Model: strings.Repeat("ab", 32), Engine: "e", Machine: "m", Memory: 1 << 20}
	for b := 1; b <= 8; b *= 2 {
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, Median: 5000, P95: 5000, CPU: 5000, Runs: 20})
	}
	return &promised{candidates: p.Candidates(p.Shares(WholeCore), 8, minMemory), times: correction.New(p, quantile)}
}

// A simulated function has executions of 5 ms and few requests. Its latency is 5 ms, the
// ways, and hardly any waiting. The requests are those that a client would send.
func TestSimulate(t *testing.T) {
	system, err := systems.ByName(systems.Default)
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{Options: Default(), system: system}
	c.Duration, c.LeastRequests = 20*time.Second, 1
	s := &Subject{Function: Function{Name: "f", SLO: 100 * ms, MaxBatch: 8}}
	p := &Pair{Function: s.Function, Load: 0.05, Rate: 10, Machine: Machine{Pace: 1, Way: ms, Outer: 2 * ms}}
	if err := c.simulate(t.Context(), s, history(), exact{}, p); err != nil {
		t.Fatal(err)
	}
	sent, err := arrivalTimes(10, c.Duration, c.Seed, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := p.Simulated
	if o.Requests != len(sent) || o.Mean < 8*ms || o.Mean > 9*ms || o.P99 < 8*ms || o.P99 > 16*ms || o.Batch < 1 || o.Batch > 1.1 || o.Within != 1 {
		t.Errorf("of %d requests: %+v", len(sent), o)
	}
	if len(p.SimulatedConfigs) == 0 {
		t.Error("no instance")
	}
}

func TestLength(t *testing.T) {
	o := Options{Duration: 10 * time.Second, Longest: 30 * time.Second, LeastRequests: 1000}
	o.Calibration = 4 * time.Second
	for rate, want := range map[float64]time.Duration{100: 4 * time.Second, 40: 5 * time.Second, 1: 12 * time.Second} {
		if got := o.calibration(rate); got != want {
			t.Errorf("calibrated for %v requests/s in %v, want %v", rate, got, want)
		}
	}
	for rate, want := range map[float64]time.Duration{1000: 10 * time.Second, 50: 20 * time.Second, 1: 30 * time.Second} {
		if got := o.length(rate); got != want {
			t.Errorf("%v requests/s for %v, want %v", rate, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	seen := Observed{Requests: 100, Mean: 10 * ms, P99: 20 * ms, Batch: 2, Within: 0.99}
	simulated := Observed{Requests: 100, Mean: 9 * ms, P99: 21 * ms, Batch: 2, Within: 0.99}
	pairs := []Pair{{Function: Function{Name: "lstm-2365"}, Load: 0.5, Rate: 60, Real: seen, Simulated: simulated, Machine: Machine{Pace: 2}, Drift: 0.25}}
	results := Results(pairs)
	for name, want := range map[string]float64{
		"rate.lstm_2365.50": 60, "drift_pct.lstm_2365.50": 25, "mean_ms.real.lstm_2365.50": 10, "mean_ms.simulated.lstm_2365.50": 9, "difference_pct.mean_ms.lstm_2365.50": -10,
		"difference_pct.batch.lstm_2365.50": 0, "worst_difference_pct.mean_ms": 10, "worst_difference_pct.p99_ms": 5, "worst_difference_pct.within_slo": 0,
	} {
		i := slices.IndexFunc(results, func(r report.Result) bool { return r.Name == name })
		if i < 0 || math.Abs(results[i].Value-want) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, results, want)
		}
	}
	var out bytes.Buffer
	if err := Table(pairs).Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"lstm-2365", "50 %", "10 → 9", "-10.0 %", "changed by +25 %"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("the table does not say %q:\n%s", word, &out)
		}
	}
	if d := difference(0, 0); d != 0 {
		t.Errorf("nothing differs from nothing by %v", d)
	}
}

func TestBar(t *testing.T) {
	var told [][2]int
	b := bar{total: 5, report: func(done, total int) { told = append(told, [2]int{done, total}) }}
	for range 3 {
		if err := b.during(2*time.Second, func() error { return io.EOF }); err != io.EOF {
			t.Error(err)
		}
	}
	if want := [][2]int{{2, 5}, {4, 5}, {5, 5}}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if err := new(bar).during(time.Second, func() error { return nil }); err != nil {
		t.Error(err)
	}
}
