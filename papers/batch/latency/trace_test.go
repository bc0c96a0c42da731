package latency

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// Requests come at 0, 10, 25 and 100 ms to a buffer of three and 20 ms. The first two
// leave at 20 ms, the third at 45 ms, the last at 120 ms. A batch executes for 10 ms,
// or for 11 ms if it has two.
func TestTraceByHand(t *testing.T) {
	record, err := NewTrace([]float64{0.01, 0.015, 0.075})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "rate", record.Rate(), 30, 1e-9)
	w, err := record.Waits(3, 0.02)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "batches of one", w.Batches()[0], 2./3, 1e-12)
	near(t, "mean batch", w.MeanBatch(), 4./3, 1e-12)
	d, err := record.Replay(3, 0.02, []float64{0.010, 0.011, 0.012}, Reality{})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "the shortest", d.Quantile(0), 0.021, 1e-6)
	near(t, "half", d.CDF(0.03), 0.75, 1e-12)
	near(t, "mean", d.Mean(), (0.031+0.021+0.030+0.030)/4, 1e-9)
	// With one instance that takes 40 ms, the second batch waits from 45 to 60 ms.
	if d, err = record.Replay(3, 0.02, []float64{0.04, 0.04, 0.04}, Reality{Instances: 1}); err != nil {
		t.Fatal(err)
	}
	near(t, "the longest", d.Quantile(0.99), 0.075, 1e-6)
}

// A long record of a process has the waits of the process, also with spread and with a
// bounded number of instances.
func TestTraceAgreesWithExact(t *testing.T) {
	b := Buffer{arrival.MMPP2(20, 200, 1, 2), 8, 0.05, line(8, 0.04, 0.004)}
	s, gaps := b.Arrivals.Sampler(rand.New(rand.NewPCG(1, 2))), make([]float64, 300_000)
	for i := range gaps {
		gaps[i] = s.Seconds()
	}
	record, err := NewTrace(gaps)
	if err != nil {
		t.Fatal(err)
	}
	w, err := record.Waits(b.Batch, b.Timeout)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Reality{{}, {Spread: 0.2}, {Spread: 0.1, Instances: 4}} {
		want, err := b.With(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := record.Replay(b.Batch, b.Timeout, b.Service, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []float64{0.5, 0.95, 0.99} {
			near(t, "replayed", got.Quantile(q)/want.Quantile(q), 1, 0.03)
		}
		if r.Instances > 0 {
			continue
		}
		at := want.Quantile(0.95)
		near(t, "within", w.Within(b.Service, r.Spread, at), want.CDF(at), 0.01)
		near(t, "spread", w.Spread(b.Service, r).Quantile(0.95)/at, 1, 0.02)
	}
}

// Within agrees with the distribution, for processes, too.
func TestWithinIsSpread(t *testing.T) {
	b := Buffer{arrival.MMPP2(20, 200, 1, 2), 8, 0.05, line(8, 0.04, 0.004)}
	w, err := b.waits()
	if err != nil {
		t.Fatal(err)
	}
	for _, sigma := range []float64{0, 0.05, 0.2, 0.6} {
		d := w.Spread(b.Service, Reality{Spread: sigma})
		for at := 0.03; at < 0.2; at += 0.01 {
			near(t, "within", w.Within(b.Service, sigma, at), d.CDF(at), 3e-3)
		}
	}
}

func TestTraceRefuses(t *testing.T) {
	for says, gaps := range map[string][]float64{"no gaps": nil, "gap 2 is -1": {1, -1}, "gap 1 is NaN": {math.NaN()}} {
		if _, err := NewTrace(gaps); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	record, err := NewTrace([]float64{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := record.Waits(0, 1); err == nil {
		t.Error("batches of none")
	}
	if _, err := record.Replay(2, 1, []float64{1}, Reality{}); err == nil {
		t.Error("a size without time")
	}
	if _, err := record.Replay(1, 1, []float64{1}, Reality{Spread: -1}); err == nil {
		t.Error("a negative spread")
	}
}

// One pause of 200 s, B = 1 and T = 0 need no special treatment.
func TestTraceOfAPause(t *testing.T) {
	gaps := make([]float64, 1000)
	for i := range gaps {
		gaps[i] = 0.001
	}
	gaps[500] = 200
	record, err := NewTrace(gaps)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		batch   int
		timeout float64
		p95     float64
	}{{1, 0.05, 0.01}, {8, 0, 0.01}, {8, 0.05, 0.017}} {
		d, err := record.Replay(c.batch, c.timeout, line(8, 0.01, 0), Reality{})
		if err != nil {
			t.Fatal(err)
		}
		near(t, "p95", d.Quantile(0.95), c.p95, 2e-4)
	}
}

// Within agrees with the distribution of Replay.
func TestTraceWithin(t *testing.T) {
	r, gaps := rand.New(rand.NewPCG(11, 12)), make([]float64, 2000)
	for i := range gaps {
		gaps[i] = r.ExpFloat64() / 80
	}
	trace, err := NewTrace(gaps)
	if err != nil {
		t.Fatal(err)
	}
	service := []float64{0.02, 0.025, 0.03, 0.035}
	for _, reality := range []Reality{{}, {Instances: 2}, {Instances: 3, Spread: 0.2}} {
		for _, timeout := range []float64{0, 0.03} {
			d, err := trace.Replay(4, timeout, service, reality)
			if err != nil {
				t.Fatal(err)
			}
			for _, limit := range []float64{0.019, 0.02, 0.045, 0.08} {
				if got, want := trace.Within(4, timeout, service, reality, limit), d.CDF(limit); math.Abs(got-want) > 1e-3 {
					t.Errorf("%+v, a timeout of %v s: %v within %v s, the replay has %v", reality, timeout, got, limit, want)
				}
			}
		}
	}
}
