package cop

import (
	"math"

	"github.com/faas-infer/faas-infer/profiler"
)

// ReusePoint says how long it takes to read data again, per unit of size, after
// Working bytes have been read in between.
type ReusePoint struct {
	Working int64
	Time    float64
}

// Reuse is a machine's memory as those see it who read the same data in a
// circle: ascending in Working. Up to some size all of it comes from the
// last-level cache, from some size on nothing does; how much of that cache the
// neighbours leave, nobody says, so the curve is measured.
type Reuse []ReusePoint

// Cold is the part of data read in a circle of working bytes that comes from
// memory: where the curve's time is between its least and its most, on lines
// between its points. For example with 60 µs a MiB at 4 MiB, 80 at 32 MiB and 100
// at 256 MiB, data in a circle of 32 MiB is cold by (80−60)/(100−60) = 1/2. An
// empty curve, or one that does not rise, says 0.
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
		// More data cannot come back sooner: what says so was disturbed.
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

// ColdShare is the part of the way from an operator's warm time to its cold one
// in a model that reads working bytes in a run. Its warm time was taken in a
// circle of alone bytes (its own weights and what was read to empty the core's
// own cache), where some of it may have been cold already:
//
//	share = (Cold(working) − Cold(alone)) / (1 − Cold(alone))
func (r Reuse) ColdShare(working, alone int64) float64 {
	already := r.Cold(alone)
	if already >= 1 {
		return 0
	}
	return fraction((r.Cold(working) - already) / (1 - already))
}

// Refill is what it costs to read again what was pushed out of the caches while
// a quota had stopped the process, in µs a MiB.
type Refill float64

// NewRefill reads it off a sweep through size bytes that takes alone µs, and mean
// µs under a quota of millicores. Without pauses the mean would be
// alone·1000/millicores; a sweep shorter than what a period's quota lasts meets
// pauses in that proportion only.
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

// UnderQuota is the mean time in µs of batches one after another on a part of a
// core: that of the work ([profiler.MeanUnderQuota]), and of reading again, once
// for every pause or every run, whichever are fewer, the cached bytes that a run
// needs. For example a run of 1 ms that needs 24 MiB, at 500m and 20 µs a MiB:
// the quota lasts 5 ms, so one run in five finds its data gone, which costs
// 24·20/5 = 96 µs a run, and the mean is 2·(1000+96) = 2192 µs.
func (r Refill) UnderQuota(c Config, cached int64, millicores int) float64 {
	if millicores%1000 == 0 {
		return c.Median
	}
	extra := float64(r) * float64(cached) / (1 << 20) * min(1, c.CPU/quotaLasts(millicores))
	return profiler.MeanUnderQuota(c.Median+extra, c.CPU+extra, millicores)
}
