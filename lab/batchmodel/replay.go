package batchmodel

import (
	"math"
	"slices"
	"time"
)

// Replayed is the result of a replay through a dispatching buffer.
type Replayed struct {
	// Latencies are in s, ascending.
	Latencies []float64
	// MeanBatch is the mean number of requests in a batch.
	MeanBatch float64
}

// Replay sends requests that came at the given ascending times through a dispatching
// buffer. A batch leaves when it is full or its first request has waited for the timeout. A
// batch of k is answered exec[k-1] s later. The last batch counts even if the end of the
// recording cut it off.
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

// Quantile returns the smallest latency in s that the part q of the requests does not
// exceed, 0 if there are no requests.
func (r Replayed) Quantile(q float64) float64 {
	n := len(r.Latencies)
	if n == 0 {
		return 0
	}
	return r.Latencies[min(n-1, max(0, int(math.Ceil(q*float64(n)))-1))]
}
