package shadows

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// From 1 s to 5 s: a quarter of a batch that took 4 s, two whole ones, a half, and two that lie outside.
func TestSteady(t *testing.T) {
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	batches := []batch{{at(-2), at(2)}, {at(2), at(4)}, {at(1), at(3)}, {at(3), at(7)}, {at(0), at(1)}, {at(5), at(6)}}
	if got := steady(batches, at(1), at(5)); math.Abs(got-2.75/4) > 1e-9 {
		t.Errorf("%v per second", got)
	}
}

// A model that takes 1.5 times as long, and the original as it was.
func TestScaled(t *testing.T) {
	m := &shadow.Model{Rows: []int{1}, Threads: []int{1}, Blocks: []shadow.Block{{Ms: [][]float64{{4}}}}}
	if got := scaled(m, 1.5); got.Blocks[0].Ms[0][0] != 6 || m.Blocks[0].Ms[0][0] != 4 {
		t.Errorf("%v of %v", got.Blocks, m.Blocks)
	}
}

// Slow models are measured for longer than asked, but the slowest only for two batches.
func TestWindow(t *testing.T) {
	for batch, want := range map[time.Duration]time.Duration{10 * time.Millisecond: 2 * time.Second, time.Second: 6 * time.Second, 5 * time.Second: 20 * time.Second, 30 * time.Second: time.Minute} {
		if got := window(2*time.Second, batch); got != want {
			t.Errorf("batches of %v are measured for %v, not %v", batch, got, want)
		}
	}
}
