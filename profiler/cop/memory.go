package cop

import (
	"math"

	"github.com/faas-infer/faas-infer/profiler"
)

// ReusePoint is the time to read data again, per unit of size, if Working bytes are read
// in a circle.
type ReusePoint struct {
	Working int64
	Time    float64
}

// Reuse is the time of reading the same data in a circle on a machine, ascending in
// Working. Small data comes entirely from the last-level cache, large data entirely from
// memory. The curve is measured because the system does not show how much of the cache
// the neighbours leave.
type Reuse []ReusePoint

// Cold is the part of data that comes from memory when working bytes are read in a
// circle. It is the position of the curve's time between its minimum and its maximum,
// on lines between its points. For example with 60 µs per MiB at 4 MiB, 80 at 32 MiB and
// 100 at 256 MiB, data in a circle of 32 MiB is cold by (80−60)/(100−60) = 1/2. It is 0
// for an empty curve and for one that does not rise.
func (r Reuse) Cold(working int64) float64 {
	if len(r) == 0 {
		return 0
	}
	least, most := r[0].Time, r[len(r)-1].Time
	if most <= least {
		return 0
	}
	highest := least
	below := r[0]
	for _, p := range r {
		// More data cannot take less time. Such a measurement was disturbed.
		highest = max(highest, p.Time)
		p.Time = highest
		if p.Working >= working {
			if p.Working == below.Working {
				return fraction((p.Time - least) / (most - least))
			}
			at := float64(working-below.Working) / float64(p.Working-below.Working)
			return fraction((below.Time + max(0, at)*(p.Time-below.Time) - least) / (most - least))
		}
		below = p
	}
	return 1
}

// ColdShare is the position between an operator's warm and cold time in a model that
// reads working bytes in a run. The warm time was measured in a circle of alone bytes (its
// own weights and the sweep of the core's own cache), where some data may have been cold
// already:
//
//	share = (Cold(working) − Cold(alone)) / (1 − Cold(alone))
func (r Reuse) ColdShare(working, alone int64) float64 {
	already := r.Cold(alone)
	if already >= 1 {
		return 0
	}
	return fraction((r.Cold(working) - already) / (1 - already))
}

// Refill is the time in µs per MiB to reload data that was evicted from the caches while
// a quota paused the process.
type Refill float64

// NewRefill calculates it from a sweep through size bytes, which takes alone µs, and mean
// µs under a quota of millicores. Without the reload the mean would be
// alone·1000/millicores. If a sweep is shorter than a period's quota lasts, only that
// fraction of the sweeps meets a pause.
func NewRefill(alone, mean float64, size int64, millicores int) Refill {
	extra := mean*float64(millicores)/1000 - alone
	perMiB := extra / (float64(size) / (1 << 20)) / min(1, alone/quotaLasts(millicores))
	if math.IsNaN(perMiB) || math.IsInf(perMiB, 0) {
		return 0
	}
	return Refill(max(0, perMiB))
}

// quotaLasts is how long a period's quota lasts one thread, in µs.
func quotaLasts(millicores int) float64 {
	return float64(profiler.QuotaPeriod.Microseconds()) * float64(millicores) / 1000
}

// UnderQuota is the mean time in µs of consecutive batches on a part of a core. It is the
// mean of the work ([profiler.MeanUnderQuota]) and of reloading cached bytes. A reload
// happens once per pause or once per run, whichever is rarer. For example a run of 1 ms
// needs 24 MiB, at 500m and 20 µs per MiB. The quota lasts 5 ms, so one run in five finds
// its data gone, which costs 24·20/5 = 96 µs per run. The mean is 2·(1000+96) = 2192 µs.
func (r Refill) UnderQuota(c Config, cached int64, millicores int) float64 {
	if millicores%1000 == 0 {
		return c.Median
	}
	extra := float64(r) * float64(cached) / (1 << 20) * min(1, c.CPU/quotaLasts(millicores))
	return profiler.MeanUnderQuota(c.Median+extra, c.CPU+extra, millicores)
}
