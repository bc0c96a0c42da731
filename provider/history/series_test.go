package history

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
)

var bounds = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 60000}

// began is a second at which neither a step nor a part of an hour begins.
const began = int64(1_790_000_003)

// meter counts as a function does.
type meter struct{ Sample }

func newMeter() *meter {
	return &meter{Sample{Latency: make([]uint64, len(bounds)+1), Batches: make([]uint64, 9)}}
}

// count counts requests in time that took up to a bound.
func (m *meter) count(n uint64, bucket int) {
	m.Arrived, m.InTime = m.Arrived+n, m.InTime+n
	m.Latency[bucket] += n
	m.Batches[0] += n
}

func TestSeries(t *testing.T) {
	m := newMeter()
	s := New(began, bounds, m.Sample)
	m.Carries, m.Cost, m.Instances = 20, 4000, 3
	for i := range int64(7200) { // Ten requests a second, the last of a minute one late.
		m.count(10, 4)
		if i%60 == 59 {
			m.InTime--
			m.Late++
		}
		s.Add(began+1+i, m.Sample)
		s.Add(began+1+i, m.Sample)
	}
	minute, hour := s.Minute(), s.Hour()
	if minute.Counts != (Counts{Arrived: 600, InTime: 599, Late: 1}) || minute.Rate() != 10 || minute.Seconds != 60 {
		t.Errorf("the last minute: %+v", minute)
	}
	if n := hour.Arrived; n < 35900 || n > 36000 || hour.Late < 59 || hour.Late > 60 {
		t.Errorf("the last hour: %+v", hour)
	}
	if minute.P50 != 15 || hour.P50 != 15 {
		t.Errorf("half of what took 10 to 20 ms took up to %g and %g ms, want 15", minute.P50, hour.P50)
	}
	latency, batches := s.Distributions()
	if latency[4] < 30000 || latency[4] > 36000 || latency[4] != batches[0] {
		t.Errorf("distributions %v %v", latency, batches)
	}
	for _, x := range []struct {
		window, step int64
		points       int
	}{{120, 1, 120}, {60, 5, 12}, {3600, 10, 360}, {3600, 60, 60}, {600, 30, 20}} {
		points := s.Points(x.window, x.step)
		if n := len(points); n != x.points && n != x.points-1 {
			t.Errorf("%+v: %d points", x, n)
		}
		for _, p := range points {
			if p.Arrived != 10*uint64(x.step) || p.At%x.step != 0 || p.Cost != 4000 || p.Instances != 3 || p.Load != 10 || math.Abs(p.Carries-20) > 0.01 || math.Abs(p.P50-15) > 0.01 {
				t.Fatalf("%+v: %+v", x, p)
			}
		}
	}
}

// The windows hold what came in them, whatever comes when, and also across seconds without a sample.
func TestSeriesForgets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m, came := newMeter(), map[int64]uint64{}
	s := New(began, bounds, m.Sample)
	for at := began + 1; at < began+9000; at++ {
		if random.IntN(3) == 0 {
			n := uint64(random.IntN(50))
			m.count(n, random.IntN(len(bounds)))
			came[at] = n
		}
		s.Add(at, m.Sample)
		if at%97 != 0 {
			continue
		}
		var minute, hour, least uint64
		for x := at - 59; x <= at; x++ {
			minute += came[x]
		}
		for x := at - 3599; x <= at; x++ {
			if hour += came[x]; x > at-3590 {
				least += came[x]
			}
		}
		if got := s.Minute().Arrived; got != minute {
			t.Fatalf("second %d: %d in the last minute, want %d", at-began, got, minute)
		}
		if got := s.Hour().Arrived; got > hour || got < least {
			t.Fatalf("second %d: %d in the last hour, want %d to %d", at-began, got, least, hour)
		}
	}
	last := s.at
	s.Add(last+65, m.Sample)
	if got := s.Minute().Counts; got != (Counts{}) {
		t.Errorf("after a minute without samples: %+v", got)
	}
	m.count(5, 0)
	s.Add(last+3*hour, m.Sample)
	if got := s.Hour().Counts; got != (Counts{Arrived: 5, InTime: 5}) {
		t.Errorf("after hours without samples: %+v", got)
	}
}

// A counter that is read in the middle of a request may seem to run backwards.
func TestSeriesNeverCountsBackwards(t *testing.T) {
	m := newMeter()
	s := New(began, bounds, m.Sample)
	for i, late := range []uint64{3, 2, 4, 4} {
		m.Late = late
		s.Add(began+1+int64(i), m.Sample)
	}
	if got := s.Minute().Late; got != 4 {
		t.Errorf("%d late, want 4", got)
	}
}

func TestYoungSeries(t *testing.T) {
	m := newMeter()
	s := New(began, bounds, m.Sample)
	if x := s.Minute(); x.Rate() != 0 || !math.IsNaN(x.P50) {
		t.Errorf("without a sample: %+v", x)
	}
	if _, ok := s.Minute().Attainment(); ok {
		t.Error("attainment without requests")
	}
	m.count(20, 2)
	s.Add(began+1, m.Sample)
	s.Add(began+2, m.Sample)
	if got := s.Minute().Rate(); got != 10 {
		t.Errorf("20 requests in 2 s are %g/s", got)
	}
	if got := len(s.Points(3600, 10)); got != 0 {
		t.Errorf("%d steps have ended", got)
	}
}

func TestQuantile(t *testing.T) {
	for _, x := range []struct {
		counts []uint64
		q      float64
		want   float64
	}{
		{[]uint64{0, 0, 0}, 0.5, math.NaN()}, {[]uint64{10, 0, 0}, 0.5, 5}, {[]uint64{10, 10, 0}, 0.5, 10},
		{[]uint64{10, 10, 0}, 0.75, 15}, {[]uint64{0, 0, 7}, 0.5, 20}, {[]uint64{99, 1, 0}, 0.99, 10},
	} {
		if got := Quantile([]float64{10, 20}, x.counts, x.q); got != x.want && !(math.IsNaN(got) && math.IsNaN(x.want)) {
			t.Errorf("%v at %g: %g, want %g", x.counts, x.q, got, x.want)
		}
	}
}

func TestShort(t *testing.T) {
	for x := 0.01; x < 1e9; x *= 1.37 {
		if got := toShort(x).value(); math.Abs(got-x) > max(0.0002*(1+x), 1e-4) {
			t.Errorf("%g comes back as %g", x, got)
		}
	}
	for _, x := range []float64{0, -1, math.NaN()} {
		if got := toShort(x).value(); got != 0 {
			t.Errorf("%g comes back as %g", x, got)
		}
	}
	if got := toShort(math.Inf(1)).value(); got < 1e9 {
		t.Errorf("infinity comes back as %g", got)
	}
}

// A thousand busy functions take less than 20 MiB, and a second of one allocates nothing.
func TestMemory(t *testing.T) {
	const functions, limit = 1000, 20 << 20
	kept := make(map[string]*Series, functions)
	m := newMeter()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range functions {
		kept[fmt.Sprintf("function-with-a-long-name-%d.openfaas-fn", i)] = New(began, bounds, m.Sample)
	}
	for at := began + 1; at < began+30; at++ {
		m.count(100, 3)
		for _, s := range kept {
			s.Add(at, m.Sample)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used := int64(after.HeapAlloc) - int64(before.HeapAlloc); used > limit {
		t.Errorf("%d functions take %d bytes, want at most %d", functions, used, limit)
	} else {
		t.Logf("%d functions take %.1f MiB", functions, float64(used)/(1<<20))
	}
	for _, s := range kept {
		at := began + 100
		if n := testing.AllocsPerRun(100, func() { at++; m.count(1, 2); s.Add(at, m.Sample) }); n > 0 {
			t.Errorf("a second allocates %g times", n)
		}
		break
	}
	runtime.KeepAlive(kept)
}
