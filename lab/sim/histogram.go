package sim

import (
	"encoding/json"
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations. Between powers of two its buckets are of the same
// width, 128 to each, so a quantile is off by less than 0.4 %. Its zero value is
// empty.
type Histogram struct {
	count   uint64
	sum     float64
	largest time.Duration
	buckets []uint64
}

const (
	// precision is the buckets to each power of two, as a power of two.
	precision = 7
	// finest is the width of the first buckets in ns, as a power of two: 2^9 ns
	// is half a microsecond.
	finest = 9
)

// index is the bucket that d belongs to: d's first precision+1 binary digits and
// how many follow.
func index(d time.Duration) int {
	v := uint64(max(d, 0)) >> finest
	shift := max(0, bits.Len64(v)-precision-1)
	return shift<<precision + int(v>>shift)
}

// middle is the value in the middle of the i-th bucket.
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

// Count is how many durations were counted.
func (h *Histogram) Count() uint64 { return h.count }

// Mean is their mean, not rounded to buckets; 0 if there are none.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.sum / float64(h.count))
}

// Max is the longest; 0 if there are none.
func (h *Histogram) Max() time.Duration { return h.largest }

// Quantile is the least duration that a share of at least q of those counted does
// not exceed, to a bucket's precision; 0 if there are none.
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

// Within is the share of those counted that are no longer than d, to a bucket's
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

// Merge counts what o has counted, too.
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

// MarshalJSON writes what people ask for: count, mean and quantiles, in ms.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	in := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return json.Marshal(map[string]any{
		"count": h.count, "meanMs": in(h.Mean()), "p50Ms": in(h.Quantile(.5)),
		"p95Ms": in(h.Quantile(.95)), "p99Ms": in(h.Quantile(.99)), "maxMs": in(h.largest),
	})
}
