package sim

import (
	"encoding/json"
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations. Each power of two has 128 buckets of the same width, so a
// quantile is off by less than 0.4 %. Its zero value is empty.
type Histogram struct {
	count   uint64
	sum     float64
	largest time.Duration
	buckets []uint64
}

const (
	// precision is the logarithm to base 2 of the number of buckets in a power of two.
	precision = 7
	// finest is the logarithm to base 2 of the first buckets' width in ns: 2^9 ns is
	// half a microsecond.
	finest = 9
)

// index returns the bucket of d. It depends on d's first precision+1 binary digits and on
// the number of digits after them.
func index(d time.Duration) int {
	v := uint64(max(d, 0)) >> finest
	shift := max(0, bits.Len64(v)-precision-1)
	return shift<<precision + int(v>>shift)
}

// middle returns the value in the middle of the i-th bucket.
func middle(i int) time.Duration {
	shift := max(0, i>>precision-1)
	low := uint64(i-shift<<precision) << shift
	width := uint64(1) << (shift + finest)
	return time.Duration(low<<finest + width/2)
}

// Add counts d n times.
func (h *Histogram) Add(d time.Duration, n uint64) {
	i := index(d)
	if i >= len(h.buckets) {
		h.buckets = append(h.buckets, make([]uint64, i+1-len(h.buckets))...)
	}
	h.buckets[i] += n
	h.count += n
	h.sum += float64(d) * float64(n)
	h.largest = max(h.largest, d)
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 { return h.count }

// Mean returns the mean duration, not rounded to buckets; 0 if there are none.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.count))
}

// Max returns the longest duration, 0 if there are none.
func (h *Histogram) Max() time.Duration { return h.largest }

// Quantile returns the shortest duration that at least the part q of the durations does not
// exceed, with a bucket's precision; 0 if there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(min(max(q, 0), 1) * float64(h.count)))
	if rank >= h.count {
		return h.largest
	}
	for i, n := range h.buckets {
		if n > 0 && rank <= n {
			return min(middle(i), h.largest)
		}
		rank -= n
	}
	return h.largest
}

// Within returns the part of the durations that are not longer than d, with a bucket's
// precision; 1 if there are none.
func (h *Histogram) Within(d time.Duration) float64 {
	if h.count == 0 {
		return 1
	}
	var n uint64
	for _, c := range h.buckets[:min(len(h.buckets), index(d)+1)] {
		n += c
	}
	return float64(n) / float64(h.count)
}

// Merge adds the durations of o.
func (h *Histogram) Merge(o *Histogram) {
	if n := len(o.buckets) - len(h.buckets); n > 0 {
		h.buckets = append(h.buckets, make([]uint64, n)...)
	}
	for i, n := range o.buckets {
		h.buckets[i] += n
	}
	h.count += o.count
	h.sum += o.sum
	h.largest = max(h.largest, o.largest)
}

// MarshalJSON writes count, mean and quantiles, in ms.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	in := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return json.Marshal(map[string]any{
		"count": h.count, "meanMs": in(h.Mean()), "p50Ms": in(h.Quantile(.5)),
		"p95Ms": in(h.Quantile(.95)), "p99Ms": in(h.Quantile(.99)), "maxMs": in(h.largest),
	})
}
