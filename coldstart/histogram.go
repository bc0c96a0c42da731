package coldstart

import (
	"math"
	"time"
)

// The histogram of Serverless in the Wild, §4.2, which INFless §3.5 takes over.
const (
	// binWidth is one minute.
	binWidth = time.Minute
	// bins span four hours; longer idle times are out of bounds.
	bins = 240
	// window is what the bins span. It is also the keep-alive time of
	// functions of which too little is known.
	window = bins * binWidth
	// headShare and tailShare are the percentiles that give the windows.
	headShare, tailShare = 0.05, 0.99
	// margin makes the head shorter and the tail longer.
	margin = 0.1
	// minCV is the least coefficient of variation of the bins' counts: below,
	// idle times of all lengths are about as frequent and say nothing.
	minCV = 2
	// minSamples is how many idle times a histogram needs to say something.
	minSamples = 10
)

// histogram counts idle times.
type histogram struct {
	counts  [bins]uint32
	inside  uint64
	outside uint64
	squares uint64 // of the counts
}

// binOf is the bin of an idle time; bins or more is out of bounds.
func binOf(idle time.Duration) int { return int(max(0, idle) / binWidth) }

// put counts n idle times of that bin.
func (h *histogram) put(bin int, n uint32) {
	if bin >= bins {
		h.outside += uint64(n)
		return
	}
	c := h.counts[bin]
	h.squares += uint64(c+n)*uint64(c+n) - uint64(c)*uint64(c)
	h.counts[bin] = c + n
	h.inside += uint64(n)
}

// remove takes back n idle times that were put.
func (h *histogram) remove(bin int, n uint32) {
	if bin >= bins {
		h.outside -= uint64(n)
		return
	}
	c := h.counts[bin]
	h.squares -= uint64(c)*uint64(c) - uint64(c-n)*uint64(c-n)
	h.counts[bin] -= n
	h.inside -= uint64(n)
}

// representative reports whether there are enough idle times within bounds and
// some lengths are clearly more frequent than others.
func (h *histogram) representative() bool {
	if h.inside < minSamples {
		return false
	}
	mean := float64(h.inside) / bins
	variance := float64(h.squares)/bins - mean*mean
	return math.Sqrt(max(0, variance)) >= minCV*mean
}

// percentile is the bin in which the share of the idle times within bounds is
// reached; there must be one.
func (h *histogram) percentile(share float64) int {
	need := uint64(math.Ceil(share * float64(h.inside)))
	need = max(need, 1)
	sum := uint64(0)
	for bin, c := range h.counts {
		if sum += uint64(c); sum >= need {
			return bin
		}
	}
	return bins - 1
}

// head is the 5th percentile, rounded down to a whole minute, less the margin;
// tail the 99th, rounded up, and the margin.
func (h *histogram) head() time.Duration {
	return scaled(time.Duration(h.percentile(headShare))*binWidth, 1-margin)
}

func (h *histogram) tail() time.Duration {
	return scaled(time.Duration(h.percentile(tailShare)+1)*binWidth, 1+margin)
}

func scaled(d time.Duration, by float64) time.Duration {
	return time.Duration(math.Round(by * float64(d)))
}
