package correction

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

const µs = time.Microsecond

// The example of beside: batches of one request do not separate the time per batch from
// the time per request.
func TestBatchesOfOneSize(t *testing.T) {
	var l beside
	for range sure {
		if _, ok := l.learned(); ok {
			t.Error("a few batches are believed")
		}
		l.observe(1, 350*µs)
	}
	got, ok := l.learned()
	if !ok || math.Abs(got.Batch-usual) > 1e-6 || math.Abs(got.Request-300) > 1e-6 {
		t.Errorf("batches of one request that take 350 µs: %+v", got)
	}
}

// Batches of different sizes separate them, for any usual.
func TestBatchesOfSeveralSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, want := range []profiler.Beside{{Batch: 150, Request: 20}, {Batch: 20, Request: 300}, {Batch: 100, Request: 0}} {
		var l beside
		for range 1000 {
			b := 1 + r.IntN(8)
			l.observe(b, time.Duration((want.Batch+want.Request*float64(b))*(0.9+0.2*r.Float64()))*µs)
		}
		got, _ := l.learned()
		if math.Abs(got.Batch-want.Batch) > 25 || math.Abs(got.Request-want.Request) > 10 {
			t.Errorf("of %+v was learned %+v", want, got)
		}
	}
}

// dssm reads its weights once per batch and 50 KB of JSON per request. Small batches take
// 1.2 times the engine's time and full ones three times.
func TestSmallBatchesTellOfLargeOnes(t *testing.T) {
	p := &profiler.Profile{Model: "m", Engine: "e", Machine: "x"}
	for b := 1; b <= 32; b *= 2 {
		took := 1500 + 100*float64(b)
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, Median: took, P95: took, CPU: took, Runs: 1})
	}
	c := New(p, 0.95)
	before, _ := c.ExecTime(32, cores(1000))
	for i := range 50 {
		b := 1 + i%3
		beside := time.Duration(50+250*b) * µs
		c.Observe(start, []Observation{{Share: cores(1000), Batch: b, Exec: time.Duration(1400+90*b)*µs + beside, Beside: beside}})
	}
	if !c.Update(start) {
		t.Fatal("nothing has changed")
	}
	after, _ := c.ExecTime(32, cores(1000))
	if more := after - before; more < 8*time.Millisecond || more > 10*time.Millisecond {
		t.Errorf("32 requests take %v more than the engine's time, not 32·250 µs and a tenth", more)
	}
	again := New(p, 0.95)
	if err := again.Restore(c.State(), start); err != nil {
		t.Fatal(err)
	}
	if kept, _ := again.ExecTime(32, cores(1000)); kept != after {
		t.Errorf("a restart makes %v of %v", kept, after)
	}
	if c.Update(start) {
		t.Error("the same is news")
	}
}

// Before the first request, JSON is expected.
func TestJSONIsExpected(t *testing.T) {
	p := profile(0.1)
	bare := New(p, 0.95)
	p.Payloads = &profiler.Payloads{Binary: 10, JSON: 1000}
	with := New(p, 0.95)
	a, _ := bare.ExecTime(8, cores(1000))
	b, _ := with.ExecTime(8, cores(1000))
	if more := b - a; more < 8*time.Millisecond || more > 9*time.Millisecond {
		t.Errorf("8 requests of 1 ms take %v more", more)
	}
}

// For any batches the learned values are neither negative nor NaN.
func FuzzBeside(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		var l beside
		for range 20 {
			l.observe(1+r.IntN(64), time.Duration(math.Exp(30*r.Float64())))
		}
		if got, ok := l.learned(); !ok || !(got.Batch >= 0) || !(got.Request >= 0) || math.IsInf(got.Batch+got.Request, 0) {
			t.Errorf("%+v, %v", got, ok)
		}
	})
}
