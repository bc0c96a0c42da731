package arrivals

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// until lists a process's arrivals below end and checks that they ascend.
func until(t *testing.T, p Process, end time.Duration) []time.Duration {
	t.Helper()
	var all []time.Duration
	last := time.Duration(0)
	for {
		at, ok := p.Next()
		if !ok || at >= end {
			return all
		}
		if at < last {
			t.Fatalf("%v comes after %v", at, last)
		}
		last = at
		all = append(all, at)
	}
}

func made(t *testing.T, p Process, err error) Process {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// moments returns the mean of the gaps in seconds and their coefficient of variation.
func moments(times []time.Duration) (mean, cv float64) {
	var sum, squares float64
	n := float64(len(times) - 1)
	for i := 1; i < len(times); i++ {
		gap := (times[i] - times[i-1]).Seconds()
		sum += gap
		squares += gap * gap
	}
	mean = sum / n
	return mean, math.Sqrt(max(0, squares/n-mean*mean)) / mean
}

// Each process has the requested mean rate and coefficient of variation.
func TestMoments(t *testing.T) {
	gamma := func(cv float64) func(uint64) (Process, error) {
		return func(seed uint64) (Process, error) { return Gamma(200, cv, seed) }
	}
	for name, c := range map[string]struct {
		make func(seed uint64) (Process, error)
		cv   float64
	}{
		"constant":  {func(seed uint64) (Process, error) { return Constant(200, seed) }, 0},
		"poisson":   {func(seed uint64) (Process, error) { return Poisson(200, seed) }, 1},
		"gamma 0.5": {gamma(0.5), 0.5},
		"gamma 1":   {gamma(1), 1},
		"gamma 3":   {gamma(3), 3},
	} {
		p, err := c.make(1)
		times := until(t, made(t, p, err), 2000*time.Second)
		mean, cv := moments(times)
		if math.Abs(mean*200-1) > 0.03 || math.Abs(cv-c.cv) > 0.05*max(1, c.cv) {
			t.Errorf("%s: mean gap %v s, cv %v", name, mean, cv)
		}
		if r := p.Rate(time.Hour); r != 200 {
			t.Errorf("%s: rate %v", name, r)
		}
		again, _ := c.make(1)
		for i, want := range times[:100] {
			if at, ok := again.Next(); !ok || at != want {
				t.Errorf("%s: the same seed gives %v for request %d, not %v", name, at, i, want)
			}
		}
		other, _ := c.make(2)
		if at, _ := other.Next(); at == times[0] {
			t.Errorf("%s: another seed gives the same time", name)
		}
	}
}

// Even arrivals do not drift: request n is n/rate after the first.
func TestConstantDoesNotDrift(t *testing.T) {
	p, err := Constant(3, 7)
	times := until(t, made(t, p, err), 100_000*time.Second)
	if len(times) != 300_000 {
		t.Errorf("%d arrivals", len(times))
	}
	for i, at := range times {
		if off := at - times[0] - time.Duration(float64(i)/3*1e9); off.Abs() > time.Microsecond {
			t.Fatalf("request %d is off by %v", i, off)
		}
	}
}

// The number of arrivals of any part of a path is the integral of its rate. The rate is 0
// to 100 over 100 s, 50 for 20 s, 0 for 10 s, and 100 to 0.
func TestPath(t *testing.T) {
	segments := []Segment{
		{100 * time.Second, 0, 100}, {20 * time.Second, 50, 50}, {10 * time.Second, 0, 0}, {100 * time.Second, 100, 0},
	}
	p, err := Path(segments, Even, 1)
	times := until(t, made(t, p, err), Forever)
	count := func(from, to float64) int {
		n := 0
		for _, at := range times {
			if s := at.Seconds(); s >= from && s < to {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		from, to float64
		want     int
	}{{0, 10, 50}, {0, 100, 5000}, {100, 120, 1000}, {120, 130, 0}, {130, 230, 5000}, {220, 230, 50}} {
		if got := count(c.from, c.to); got < c.want-1 || got > c.want+1 {
			t.Errorf("%v to %v s: %d arrivals, want %d", c.from, c.to, got, c.want)
		}
	}
	for _, c := range []struct {
		at   time.Duration
		want float64
	}{{0, 0}, {50 * time.Second, 50}, {110 * time.Second, 50}, {125 * time.Second, 0}, {155 * time.Second, 75}, {230 * time.Second, 0}, {Forever, 0}} {
		if got := p.Rate(c.at); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("rate at %v is %v, want %v", c.at, got, c.want)
		}
	}
}

// Two states last on average 9 s with 10/s, and 1 s with 190/s. The mean rate is 28/s, and
// counts of seconds vary far more than Poisson's.
func TestMMPP(t *testing.T) {
	states := []State{{10, 9 * time.Second}, {190, time.Second}}
	p, err := MMPP(states, 3)
	const seconds = 20_000
	times := until(t, made(t, p, err), seconds*time.Second)
	if rate := float64(len(times)) / seconds; math.Abs(rate-28) > 1.5 {
		t.Errorf("%v requests/s, want 28", rate)
	}
	counts := make([]float64, seconds)
	for _, at := range times {
		counts[at/time.Second]++
	}
	var mean, variance float64
	for _, n := range counts {
		mean += n / seconds
	}
	for _, n := range counts {
		variance += (n - mean) * (n - mean) / seconds
	}
	if variance < 20*mean {
		t.Errorf("variance %v at mean %v", variance, mean)
	}
	// Rate follows the very states that Next is in.
	q, err := MMPP(states, 3)
	made(t, q, err)
	expected := 0.0
	for cs := range 100 * seconds {
		expected += q.Rate(time.Duration(cs)*10*time.Millisecond) / 100
	}
	if math.Abs(expected/float64(len(times))-1) > 0.01 {
		t.Errorf("rates add up to %v requests, there are %d", expected, len(times))
	}
	// The first state is the one the process is mostly in.
	first := 0
	for seed := range uint64(1000) {
		p, _ := MMPP(states, seed)
		if p.Rate(0) == 190 {
			first++
		}
	}
	if first < 60 || first > 140 {
		t.Errorf("%d of 1000 begin in the state that has a tenth of the time", first)
	}
}

// A step has its count, and the running total of scaled counts is never off by a
// whole request.
func TestCounts(t *testing.T) {
	counts := []float64{3, 0, 0, 5, 1, 0.5, 2}
	for _, scale := range []float64{1, 0.3, 2.5, 40} {
		p, err := Counts(counts, time.Minute, scale, 5)
		times := until(t, made(t, p, err), Forever)
		total := 0.0
		for i, n := range counts {
			total += n * scale
			got := 0
			for _, at := range times {
				if at < time.Duration(i+1)*time.Minute {
					got++
				}
			}
			if math.Abs(float64(got)-total) >= 1 {
				t.Errorf("scale %v: %d requests up to minute %d, want %v", scale, got, i, total)
			}
			if r := p.Rate(time.Duration(i)*time.Minute + time.Second); math.Abs(r-n*scale/60) > 1e-12 {
				t.Errorf("rate %v in minute %d", r, i)
			}
		}
	}
	if p, _ := Counts(counts, time.Minute, 1, 5); p.Rate(time.Hour) != 0 || p.Rate(-1) != 0 {
		t.Error("a rate beyond the counts")
	}
}

// Within a step, requests are uniformly random. A step of many has a quarter of them in
// every quarter, and its gaps vary like exponential ones.
func TestCountsArePlacedAtRandom(t *testing.T) {
	p, err := Counts([]float64{40_000}, time.Minute, 1, 9)
	times := until(t, made(t, p, err), Forever)
	if len(times) != 40_000 {
		t.Fatalf("%d requests", len(times))
	}
	for q := 1; q < 4; q++ {
		at := times[q*10_000].Seconds() / 15
		if math.Abs(at-float64(q)) > 0.03*float64(q) {
			t.Errorf("a quarter ends at %v of 4", at)
		}
	}
	if _, cv := moments(times); math.Abs(cv-1) > 0.03 {
		t.Errorf("cv %v", cv)
	}
}

func TestTimestamps(t *testing.T) {
	want := []time.Duration{0, 0, time.Second, 61 * time.Second}
	p, err := Timestamps(want)
	if got := until(t, made(t, p, err), Forever); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	for at, want := range map[time.Duration]float64{0: 3.0 / 60, 59 * time.Second: 3.0 / 60, time.Minute: 1.0 / 60, time.Hour: 0, -1: 0, Forever: 0} {
		if got := p.Rate(at); got != want {
			t.Errorf("rate at %v is %v, want %v", at, got, want)
		}
	}
}

func TestWhatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		make func() (Process, error)
		want string
	}{
		"negative rate": {func() (Process, error) { return Constant(-1, 0) }, "a rate of -1 requests/s"},
		"NaN":           {func() (Process, error) { return Poisson(math.NaN(), 0) }, "a rate of NaN"},
		"infinite":      {func() (Process, error) { return Poisson(math.Inf(1), 0) }, "a rate of +Inf"},
		"cv":            {func() (Process, error) { return Gamma(1, 0, 0) }, "a coefficient of variation of 0"},
		"cv NaN":        {func() (Process, error) { return Gamma(1, math.NaN(), 0) }, "a coefficient of variation of NaN"},
		"no segment":    {func() (Process, error) { return Path(nil, Even, 0) }, "needs a segment"},
		"no time":       {func() (Process, error) { return Path([]Segment{{0, 1, 1}}, Even, 0) }, "segment 1: a segment of 0s"},
		"no end":        {func() (Process, error) { return Path([]Segment{{Forever, 1, 2}}, Even, 0) }, "without an end cannot change"},
		"one state":     {func() (Process, error) { return MMPP([]State{{1, 1}}, 0) }, "at least two states"},
		"state rate":    {func() (Process, error) { return MMPP([]State{{1, 1}, {-1, 1}}, 0) }, "state 2: a rate of -1"},
		"state time":    {func() (Process, error) { return MMPP([]State{{1, 1}, {1, 0}}, 0) }, "state 2 lasts 0s"},
		"no counts":     {func() (Process, error) { return Counts(nil, 1, 1, 0) }, "no counts"},
		"no step":       {func() (Process, error) { return Counts([]float64{1}, 0, 1, 0) }, "steps must be longer"},
		"too long":      {func() (Process, error) { return Counts(make([]float64, 2), Forever, 1, 0) }, "longer than 292 years"},
		"count":         {func() (Process, error) { return Counts([]float64{1, -1}, time.Second, 1, 0) }, "count 2, -1 times 1 per 1s: a rate of -1"},
		"order":         {func() (Process, error) { return Timestamps([]time.Duration{2, 1}) }, "time 2, 1ns, is before 2ns"},
		"before":        {func() (Process, error) { return Timestamps([]time.Duration{-1}) }, "time 1"},
	} {
		if _, err := c.make(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// A process ends if its rate is 0, or so low that its next request is later than any time.
func TestHardlyAny(t *testing.T) {
	for _, rate := range []float64{0, 1e-300, 1e-12} {
		p, err := Poisson(rate, 1)
		if at, ok := made(t, p, err).Next(); ok {
			t.Errorf("at %v/s a request comes at %v", rate, at)
		}
		if _, ok := p.Next(); ok {
			t.Error("a process that has ended goes on")
		}
	}
}

// With any segments, times ascend, stay within the path, and have the number that the
// integral gives.
func FuzzPath(f *testing.F) {
	f.Add(uint64(1), uint32(1000), uint32(2000), uint16(10), uint16(0), uint16(300))
	f.Add(uint64(2), uint32(1), uint32(4e9), uint16(0), uint16(0), uint16(65535))
	f.Fuzz(func(t *testing.T, seed uint64, long, short uint32, a, b, c uint16) {
		segments := []Segment{{time.Duration(long) + 1, float64(a), float64(b)}, {time.Duration(short) + 1, float64(c), float64(a)}, {1, float64(b), 0}}
		mass, end := 0.0, time.Duration(0)
		for _, s := range segments {
			mass += s.For.Seconds() * (s.From + s.To) / 2
			end += s.For
		}
		p, err := Path(segments, Even, seed)
		if err != nil {
			t.Fatal(err)
		}
		n, last := 0, time.Duration(0)
		for at, ok := p.Next(); ok; at, ok = p.Next() {
			if at < last || at > end {
				t.Fatalf("%v after %v, the end is %v", at, last, end)
			}
			n, last = n+1, at
		}
		if math.Abs(float64(n)-mass) > 1+mass*1e-6 {
			t.Fatalf("%d arrivals, the rate's integral is %v", n, mass)
		}
	})
}

func BenchmarkPoisson(b *testing.B) {
	p, _ := Poisson(1e6, 1)
	for b.Loop() {
		p.Next()
	}
}

func BenchmarkCounts(b *testing.B) {
	counts := make([]float64, 1e6)
	for i := range counts {
		counts[i] = 5000
	}
	p, _ := Counts(counts, time.Minute, 1, 1)
	for b.Loop() {
		p.Next()
	}
}
