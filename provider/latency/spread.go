package latency

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// most bounds what is said of a spread: more is a passing trouble of the machine.
const most = 0.5

// Spread is the standard deviation of the logarithm of execution times, on the share
// that has shown most: that of lognormal times which have the mean that is known and, so
// much of them being no longer, 0.95 for the 95th percentile, the times in table. It is 0
// where no share has shown enough, or the quantile is too near the middle to tell.
func (ms Means) Spread(p *profiler.Profile, quantile float64, table func(millicores int) []time.Duration) float64 {
	share := ms.Surest()
	if share == 0 {
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
	return min(most, max(0, sum/n/z))
}
