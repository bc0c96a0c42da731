package batchmodel

import (
	"math"
	"slices"
	"time"
)

// Replayed is what requests have met in a dispatching buffer.
type Replayed struct {
	// Latencies are in s, ascending; MeanBatch is how many requests a batch had.
	Latencies []float64
	MeanBatch float64
}

// Replay sends requests that came at the given times through a dispatching buffer: a
// batch leaves when so many are there or the first has waited for the timeout, and
// exec[k-1] s later a batch of k is answered. Times ascend. The last batch, which may
// have been cut off by the end of the recording, counts as it is.
func Replay(times []time.Duration, batch int, timeout time.Duration, exec []float64) Replayed {
	r := Replayed{Latencies: make([]float64, 0, len(times))}
	batches := 0
	for from := 0; from < len(times); batches++ {
		to, left := from+1, times[from]+timeout
		for to < len(times) && to-from < batch && times[to] < left {
			to++
		}
		if to-from == batch {
			left = times[to-1]
		}
		done := left.Seconds() + exec[to-from-1]
		for _, at := range times[from:to] {
			r.Latencies = append(r.Latencies, done-at.Seconds())
		}
		from = to
	}
	slices.Sort(r.Latencies)
	if batches > 0 {
		r.MeanBatch = float64(len(times)) / float64(batches)
	}
	return r
}

// Quantile is the smallest latency in s that so much of the requests do not exceed; 0
// if there were none.
func (r Replayed) Quantile(q float64) float64 {
	n := len(r.Latencies)
	if n == 0 {
		return 0
	}
	return r.Latencies[min(n-1, max(0, int(math.Ceil(q*float64(n)))-1))]
}
