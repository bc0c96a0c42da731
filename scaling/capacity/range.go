package capacity

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Rounding is how Eq. 1 turns a time into a rate.
type Rounding int

// The roundings.
const (
	// Exact uses b/t without rounding. Production uses it: Paper's ⌊1/t⌋ is 0 for every t
	// above one second and loses up to half of the rate above 0.5 s.
	Exact Rounding = iota
	// Paper uses ⌊1/t⌋·b and ⌈1/(t_slo−t)⌉·b, as Eq. 1 is printed.
	Paper
	// Whole uses ⌊b/t⌋ and ⌊b/(t_slo−t)⌋, as INFless' release does. A batch of 2 in 157 ms
	// has an r_up of 12/s here, 12.7 with Exact and 12 with Paper; one of 8 in 170 ms has
	// 47, 47.1 and 40.
	Whole
)

// Range is [r_low, r_up] in requests per second: what one instance (or all of
// a function's instances together) can take within the SLO.
type Range struct {
	Low, Up float64
}

// Bounds is Eq. 1 for an instance of batch size b, whose full batch takes
// exec, under slo. An slo of 0 means none, and r_low is then 0.
//
// The paper does not cover two cases. At b = 1 no request waits for a batch to fill (§3.4), so
// Exact has r_low = 0. If exec is more than half the SLO, Eq. 1 puts r_low above r_up; Bounds
// then lowers it to r_up. An exec that is not positive gives an empty range.
func Bounds(b int, exec, slo time.Duration, rounding Rounding) Range {
	if exec <= 0 || b < 1 {
		return Range{}
	}
	size, rate, wait := float64(b), 1/exec.Seconds(), 0.0
	if slo > exec {
		wait = 1 / (slo - exec).Seconds()
	}
	if rounding == Paper {
		rate, wait = math.Floor(rate), math.Ceil(wait)
	} else if b == 1 {
		wait = 0
	}
	up, low := rate*size, wait*size
	if rounding == Whole {
		up, low = math.Floor(up), math.Floor(low)
	}
	if slo > 0 && slo <= exec && b > 1 {
		low = up
	}
	return Range{Low: min(low, up), Up: up}
}

// BoundsOf is Eq. 1 for an instance with a config, whose Batch and Concurrency count. If it
// executes k batches at the same time, exec is the time of each with the others running, and the
// instance takes what k instances with that time take.
//
// For example ⟨8⟩ in 50 ms under 200 ms takes from 8/150 ms = 53.3/s to 8/50 ms = 160/s. With
// three batches at the same time it takes from 160/s to 480/s.
func BoundsOf(c cluster.Config, exec, slo time.Duration, rounding Rounding) Range {
	return Bounds(c.Batch, exec, slo, rounding).times(c.Streams())
}

// times is the range of n instances.
func (r Range) times(n int) Range { return Range{Low: float64(n) * r.Low, Up: float64(n) * r.Up} }

// Total sums ranges to [R_min, R_max] (§3.2).
func Total(ranges []Range) Range {
	var sum Range
	for _, r := range ranges {
		sum.Low += r.Low
		sum.Up += r.Up
	}
	return sum
}

// Threshold is the load in requests per second below which a function has surplus instances. It is
// Eq. 7: α·R_max + (1−α)·R_min. With α = 0.8 it keeps rates near the upper bound, as §3.2 demands.
// The text of §3.2 (ii) has R_min and R_max the other way round: instances would then be released
// only when their rates are near r_low.
func Threshold(total Range, alpha float64) float64 {
	return alpha*total.Up + (1-alpha)*total.Low
}

// Rates is r_i of §3.2: how many requests per second each instance gets of a load of rps. In case
// (i) each gets r_up, and the rest of the load has no instance until new ones come. In the band
// and below it, instances share the load in proportion to the sizes of their ranges:
//
//	r_i = r_up − (R_max−R)/(R_max−R_min) · (r_up−r_low)
//
// and the rates sum to rps. Below R_min that formula makes some rates negative, so each instance
// gets its share of r_low instead. After case (iii) only a set that cannot shrink further is
// below R_min.
func Rates(rps float64, ranges []Range) []float64 {
	rates := make([]float64, len(ranges))
	total := Total(ranges)
	for i, r := range ranges {
		switch {
		case rps >= total.Up:
			rates[i] = r.Up
		case rps <= 0:
			rates[i] = 0
		case rps < total.Low:
			rates[i] = r.Low * rps / total.Low
		default:
			rates[i] = r.Up - (total.Up-rps)/(total.Up-total.Low)*(r.Up-r.Low)
		}
	}
	return rates
}
