package latency

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// maxSpread bounds Spread: a larger one comes from a passing disturbance of the machine.
const maxSpread = 0.5

// Spread returns the standard deviation of the logarithm of execution times, on the share with
// the most executions. It assumes lognormal times with the observed mean, of which the part
// quantile (0.95 for the 95th percentile) is no longer than the times in table. It returns 0 if
// no share has enough executions, or if the quantile is too close to the median.
func (ms Means) Spread(p *profiler.Profile, quantile float64, table func(on profiler.Share) []time.Duration) float64 {
	share := ms.Surest()
	if share == (profiler.Share{}) {
		return 0
	}
	sum, n := 0.0, 0.0
	for b, exec := range table(share) {
		if mean := ms.Of(p, share, b+1, exec); mean > 0 {
			sum += math.Log(float64(exec) / float64(mean))
			n++
		}
	}
	z := math.Sqrt2 * math.Erfinv(2*quantile-1)
	if n == 0 || z < 0.1 {
		return 0
	}
	return min(maxSpread, max(0, sum/n/z))
}
