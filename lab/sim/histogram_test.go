package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestHistogramIsCloseToTheSortedList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h, half Histogram
	var all []time.Duration
	for i := range 20_000 {
		d := time.Duration(math.Exp(r.NormFloat64()*2) * 1e7)
		all = append(all, d)
		h.Add(d, 1)
		if i%2 == 0 {
			half.Add(d, 1)
		}
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(math.Ceil(q*float64(len(all))))-1)]
		if got := h.Quantile(q); q > 0 && math.Abs(float64(got-want)) > 0.004*float64(want) {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
		if got := h.Within(want); math.Abs(got-max(q, 1.0/20_000)) > 0.004 {
			t.Errorf("within %v: %v, want %v", want, got, q)
		}
	}
	var sum float64
	for _, d := range all {
		sum += float64(d)
	}
	if got, want := float64(h.Mean()), sum/float64(len(all)); math.Abs(got-want) > 1 {
		t.Errorf("mean %v, want %v", got, want)
	}
	half.Merge(&half)
	if half.Count() != 20_000 || h.Max() != all[len(all)-1] {
		t.Errorf("count %d, max %v", half.Count(), h.Max())
	}
}

func TestEmptyHistogram(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 || h.Within(0) != 1 {
		t.Errorf("an empty histogram says %v, %v, %v", h.Quantile(0.5), h.Mean(), h.Within(0))
	}
}

func TestEveryDurationIsInItsBucket(t *testing.T) {
	last := -1
	for d := time.Duration(1); d > 0 && d < 1<<50; d += d/300 + 1 {
		i := index(d)
		if i < last || i > last+2 {
			t.Fatalf("%v is in bucket %d, the one before in %d", d, i, last)
		}
		if off := math.Abs(float64(middle(i)-d)) - 256; off > 0.004*float64(d) {
			t.Fatalf("%v is in the bucket around %v", d, middle(i))
		}
		last = i
	}
}
