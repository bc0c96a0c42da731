package coldstart

import (
	"math"
	"time"
)

// These constants describe the histogram of Serverless in the Wild, §4.2, which INFless
// adopts (§3.5).
const (
	// width is one minute.
	width = time.Minute
	// bins span four hours; longer idle times are out of bounds.
	bins = 240
	// Range is the span of the bins. It is also the keep-alive of functions with too
	// few samples.
	Range = bins * width
	// headShare and tailShare are the percentiles that determine the windows.
	headShare, tailShare = 0.05, 0.99
	// margin makes the head shorter and the tail longer.
	margin = 0.1
	// minCV is the least coefficient of variation of the bins' counts. Below it, idle
	// times of all lengths are about equally frequent and say nothing.
	minCV = 2
	// LeastKeepAlive is the shortest time for which windows of a histogram keep a function if
	// its idle times of less than a minute are more than 5 %: one bin plus the margin.
	LeastKeepAlive = width + width/10
	// MinSamples is the minimum number of idle times for a representative histogram.
	MinSamples = 10
)

// Histogram counts idle times in bins.
type Histogram struct {
	counts [bins]uint32
	// Inside counts the idle times within the bins, Outside the longer ones.
	Inside, Outside uint64
	squares         uint64 // of the counts
}

// Add counts an idle time.
func (h *Histogram) Add(idle time.Duration) { h.put(binOf(idle), 1) }

// binOf returns the bin of an idle time; bins or more is out of bounds.
func binOf(idle time.Duration) int { return int(max(0, idle) / width) }

// put adds n idle times to a bin.
func (h *Histogram) put(bin int, n uint32) {
	if bin >= bins {
		h.Outside += uint64(n)
		return
	}
	c := h.counts[bin]
	h.squares += uint64(c+n)*uint64(c+n) - uint64(c)*uint64(c)
	h.counts[bin] = c + n
	h.Inside += uint64(n)
}

// remove removes n idle times from a bin.
func (h *Histogram) remove(bin int, n uint32) {
	if bin >= bins {
		h.Outside -= uint64(n)
		return
	}
	c := h.counts[bin]
	h.squares -= uint64(c)*uint64(c) - uint64(c-n)*uint64(c-n)
	h.counts[bin] -= n
	h.Inside -= uint64(n)
}

// Representative reports whether the histogram has enough idle times within bounds and
// some lengths are clearly more frequent than others.
func (h *Histogram) Representative() bool {
	if h.Inside < MinSamples {
		return false
	}
	mean := float64(h.Inside) / bins
	variance := float64(h.squares)/bins - mean*mean
	return math.Sqrt(max(0, variance)) >= minCV*mean
}

// percentile returns the bin in which the share of the idle times within bounds is
// reached. At least one idle time must be within bounds.
func (h *Histogram) percentile(share float64) int {
	need := uint64(math.Ceil(share * float64(h.Inside)))
	need = max(need, 1)
	sum := uint64(0)
	for bin, c := range h.counts {
		if sum += uint64(c); sum >= need {
			return bin
		}
	}
	return bins - 1
}

// Head is the 5th percentile, rounded down to a whole minute, less 10 %. At least one
// idle time must be within bounds.
func (h *Histogram) Head() time.Duration {
	return Scale(time.Duration(h.percentile(headShare))*width, 1-margin)
}

// Tail is the 99th percentile, rounded up to a whole minute, plus 10 %.
func (h *Histogram) Tail() time.Duration {
	return Scale(time.Duration(h.percentile(tailShare)+1)*width, 1+margin)
}

// Scale multiplies a time.
func Scale(d time.Duration, by float64) time.Duration {
	return time.Duration(math.Round(by * float64(d)))
}

// Marshal writes the bins that are not empty.
func (h *Histogram) Marshal(w *wireWriter) {
	w.Count(h.Outside)
	filled := uint64(0)
	for _, c := range h.counts {
		filled += min(1, uint64(c))
	}
	w.Count(filled)
	for bin, c := range h.counts {
		if c > 0 {
			w.Count(uint64(bin))
			w.Count(uint64(c))
		}
	}
}

// Restore reads what Marshal wrote into an empty histogram.
func (h *Histogram) Restore(r *wireReader) {
	h.Outside = r.Count(MaxCount)
	for range r.Count(bins) {
		bin := int(r.Count(bins - 1))
		if h.counts[bin] > 0 {
			r.Fail()
		}
		h.put(bin, uint32(r.Count(MaxCount)))
	}
}
