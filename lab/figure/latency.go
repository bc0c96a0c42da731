package figure

import (
	"time"

	"github.com/faas-infer/faas-infer/lab/sim"
)

// latencies returns the latencies of all functions together.
func latencies(r *sim.Result) *sim.Histogram {
	all := &sim.Histogram{}
	for _, f := range r.Functions {
		if f.Latency != nil {
			all.Merge(f.Latency)
		}
	}
	return all
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
