package scaling

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Peak remembers the highest demand for the length of the window.
func TestPeak(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	var p Peak
	var demands []float64
	for i := range 1000 {
		d := math.Floor(r.ExpFloat64() * 100)
		demands = append(demands, d)
		got := p.Observe(epoch.Add(time.Duration(i)*time.Second), d, time.Minute)
		if want := slices.Max(demands[max(0, len(demands)-60):]); got != want {
			t.Fatalf("second %d: %v, want %v", i, got, want)
		}
		got = p.Within(epoch.Add(time.Duration(i)*time.Second), 10*time.Second)
		if want := slices.Max(demands[max(0, len(demands)-11):]); got != want {
			t.Fatalf("second %d: %v within 10 s, want %v", i, got, want)
		}
	}
	var quick Peak
	for i := range 100_000 {
		quick.Observe(epoch.Add(time.Duration(i)*time.Millisecond), float64(100_000-i), time.Minute)
	}
	if len(quick.samples) > maxSamples+1 {
		t.Errorf("%d samples are kept", len(quick.samples))
	}
}
