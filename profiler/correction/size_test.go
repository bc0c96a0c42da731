package correction

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// texts is profile for 128 tokens, of 2 elements each; times grow in proportion to the tokens.
func texts() *profiler.Profile {
	p := profile(0)
	p.BySize = &profiler.Sizes{Unit: "tokens", Length: 128, Elements: 256}
	for _, n := range []int64{16, 64, 128, 256, 512} {
		p.BySize.Times = append(p.BySize.Times, profiler.SizeTime{Length: n, Elements: 2 * n, Factors: []float64{float64(n) / 128}})
	}
	return p
}

// execute passes n batches of two rows of a length, which take as long as predicted for that, one every 100 ms,
// and returns the time after them.
func execute(c *Correction, at time.Time, n int, length int64, slower float64) time.Time {
	for range n {
		at = at.Add(100 * time.Millisecond)
		usual := texts().Sized(2 * length).Measurements[1].Median
		c.Observe(at, []Observation{{Share: cores(1000), Batch: 2, Elements: 2 * length, Exec: time.Duration(slower * usual * float64(time.Microsecond))}})
		c.Update(at)
	}
	return at
}

func planned(c *Correction) float64 {
	exec, _ := c.ExecTime(2, cores(1000))
	return exec.Seconds() * 1000
}

func around(a, b float64) bool { return math.Abs(a/b-1) < 0.08 }

// Requests of 256 tokens are planned as such at once, and shorter ones after a minute. That they take longer than
// those of the profile is no sign that the model is slow.
func TestTimesFollowTheSizesThatAreSeen(t *testing.T) {
	c := New(texts(), 0.95)
	base := planned(c) / (1 + profiler.Margin) // Evidence replaces the margin.
	at := execute(c, start, 1, 256, 1)
	if got := planned(c); !around(got, 2*(1+profiler.Margin)*base) {
		t.Errorf("after one batch of 256 tokens two rows take %.2f ms, want twice %.2f", got, base)
	}
	if length, unit, ok := c.Larger(); length != 256 || unit != "tokens" || !ok {
		t.Errorf("planned are %d %s, %v", length, unit, ok)
	}
	at = execute(c, at, 200, 256, 1)
	if ratio, ok := c.Ratio(cores(1000)); !ok || !around(ratio, 1) {
		t.Errorf("the model seems slower by %.2f", ratio)
	}
	// Of many short requests 4 % are long, which is less than the quantile leaves out.
	for range 100 {
		at = execute(c, execute(c, at, 1, 256, 1), 25, 30, 1)
	}
	if got := planned(c); !around(got, base/2) {
		t.Errorf("with short requests two rows take %.2f ms, want half of %.2f", got, base)
	}
	// Executions of any size show that the model is slower.
	execute(c, at, 400, 200, 1.5)
	if got := planned(c); !around(got, 3*base) {
		t.Errorf("a model slower by half takes %.2f ms for 256 tokens, want three times %.2f", got, base)
	}
}

// A delay of a short text is no sign that a long one takes twice as long. A machine at half its speed is.
func TestDelaysOfShortRequestsSayLittleOfLongOnes(t *testing.T) {
	c := New(texts(), 0.95)
	at := execute(c, start, 50, 128, 1)
	for range 100 {
		at = execute(c, execute(c, execute(c, at, 1, 128, 1), 4, 16, 1), 2, 16, 2)
	}
	if ratio, _ := c.Ratio(cores(1000)); ratio > 1.3 { // Their mean is 1.14.
		t.Errorf("with short requests that take twice as long now and then, long ones seem slower by %.2f", ratio)
	}
	for range 100 {
		at = execute(c, execute(c, at, 1, 128, 2), 6, 16, 2)
	}
	if ratio, _ := c.Ratio(cores(1000)); !around(ratio, 2) {
		t.Errorf("at half the speed long requests seem slower by %.2f", ratio)
	}
}

// The plan passes over requests that are late on any instance, unless many are.
func TestFewRequestsThatAreTooLongDoNotChangeThePlan(t *testing.T) {
	c := New(texts(), 0.95)
	exec, _ := c.ExecTime(1, cores(1000))
	c.SetObjective(0.95, 3*exec, cores(1000)) // 512 tokens take four times as long.
	at := execute(c, start, 1, 512, 1)
	for range 20 {
		at = execute(c, execute(c, at, 1, 512, 1), 39, 64, 1)
	}
	if _, _, larger := c.Larger(); larger {
		t.Error("the plan follows 2.5 % of requests that are late in any case")
	}
	at = execute(c, at, 1, 256, 1)
	at = execute(c, at, 20, 256, 1)
	if length, _, _ := c.Larger(); length != 256 {
		t.Errorf("planned are %d tokens, want those of requests that can be in time", length)
	}
	execute(c, at, 60, 512, 1)
	if length, _, _ := c.Larger(); length != 512 {
		t.Errorf("planned are %d tokens of those of most requests", length)
	}
}

func TestSizesAreKeptOverARestart(t *testing.T) {
	c := New(texts(), 0.95)
	at := execute(c, start, 50, 512, 1)
	again := New(texts(), 0.95)
	if err := again.Restore(c.State(), at); err != nil {
		t.Fatal(err)
	}
	if !around(planned(again), planned(c)) {
		t.Errorf("two rows take %.2f ms after a restart, %.2f before", planned(again), planned(c))
	}
	bad := c.State()
	bad.Elements = -1
	if again.Restore(bad, at) == nil {
		t.Error("a negative size is restored")
	}
	old := c.State()
	old.Elements = 0
	if fresh := New(texts(), 0.95); fresh.Restore(old, at) != nil {
		t.Error("a state from before is refused")
	}
}

// A model of one size has no plan by size.
func TestOneSize(t *testing.T) {
	c := New(profile(0), 0.95)
	before := planned(c)
	execute(c, start, 3, 512, 1)
	if _, _, ok := c.Larger(); ok || c.State().Elements != 0 {
		t.Errorf("planned from %.2f to %.2f", before, planned(c))
	}
}
