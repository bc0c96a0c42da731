package arrival

import (
	"math"
	"time"
)

// Moments are the moments of gaps between requests that Fit needs.
type Moments struct {
	// N is the number of gaps.
	N int
	// Mean is the mean gap in s, SCV the gaps' squared coefficient of variation,
	// Skewness the third standardised moment, and Lag1 the correlation of a gap with
	// the next.
	Mean, SCV, Skewness, Lag1 float64
}

// Window keeps the moments of the last gaps between requests. Adding a gap takes a few
// operations on average, whatever the window's length. The moments are as exact as if
// they were calculated again: Window joins sums and never subtracts. So one gap of
// 200 s leaves no trace in the sums of milliseconds after it has left the window.
//
// Window is a queue made of two stacks. It sums newer gaps as they come. For each
// older gap, suffixes has the sum of that gap and the older gaps after it.
type Window struct {
	length   int
	suffixes []sums // the last one sums all older gaps
	newer    []sums // one for each newer gap
	newest   sums   // of all newer gaps
	last     float64
	any      bool
}

// sums has the count, means and central moments of gaps y, and of pairs of a gap y and
// the gap x before it. Sums are joined by the formulas of Chan et al. 1979 and Pébay
// 2008.
type sums struct {
	n, mean, m2, m3 float64
	// pairs counts the gaps that have one before; meanX, meanY and product describe
	// these.
	pairs, meanX, meanY, product float64
}

// NewWindow returns a window of the last n gaps, but at least 2.
func NewWindow(n int) *Window { return &Window{length: max(2, n)} }

// Len is the number of gaps in the window.
func (w *Window) Len() int { return len(w.suffixes) + len(w.newer) }

// Add adds the gap between the last two requests. It removes the oldest gap from a
// full window. A negative gap counts as 0.
func (w *Window) Add(gap time.Duration) {
	y := max(0, gap.Seconds())
	one := sums{n: 1, mean: y}
	if w.any {
		one.pairs, one.meanX, one.meanY = 1, w.last, y
	}
	w.last, w.any = y, true
	if w.Len() == w.length {
		w.evict()
	}
	w.newer = append(w.newer, one)
	w.newest = join(w.newest, one)
}

// evict drops the oldest gap.
func (w *Window) evict() {
	if len(w.suffixes) == 0 {
		var all sums
		for i := len(w.newer) - 1; i >= 0; i-- {
			all = join(w.newer[i], all)
			w.suffixes = append(w.suffixes, all)
		}
		w.newer, w.newest = w.newer[:0], sums{}
	}
	w.suffixes = w.suffixes[:len(w.suffixes)-1]
}

// Moments returns the moments of the gaps in the window. SCV, Skewness and Lag1 are 0
// if all gaps are equal.
func (w *Window) Moments() Moments {
	all := w.newest
	if n := len(w.suffixes); n > 0 {
		all = join(w.suffixes[n-1], all)
	}
	return all.moments()
}

func (s sums) moments() Moments {
	m := Moments{N: int(s.n), Mean: s.mean}
	if s.n == 0 || s.mean <= 0 {
		return m
	}
	variance := s.m2 / s.n
	m.SCV = variance / (s.mean * s.mean)
	if m.SCV < negligible {
		m.SCV = 0
		return m
	}
	m.Skewness = s.m3 / s.n / (variance * math.Sqrt(variance))
	if s.pairs > 0 {
		m.Lag1 = min(1, max(-1, s.product/s.pairs/variance))
	}
	return m
}

// negligible is the SCV below which a variation is only rounding.
const negligible = 1e-18

// join returns the sums over both.
func join(a, b sums) sums {
	if a.n == 0 {
		return b
	}
	if b.n == 0 {
		return a
	}
	n, d := a.n+b.n, b.mean-a.mean
	s := sums{n: n, mean: a.mean + d*b.n/n}
	s.m2 = a.m2 + b.m2 + d*d*a.n*b.n/n
	s.m3 = a.m3 + b.m3 + d*d*d*a.n*b.n*(a.n-b.n)/(n*n) + 3*d*(a.n*b.m2-b.n*a.m2)/n
	if pairs := a.pairs + b.pairs; pairs > 0 {
		dx, dy, part := b.meanX-a.meanX, b.meanY-a.meanY, b.pairs/pairs
		s.pairs = pairs
		s.meanX, s.meanY = a.meanX+dx*part, a.meanY+dy*part
		s.product = a.product + b.product + dx*dy*a.pairs*part
	}
	return s
}

// MomentsOf returns the moments of consecutive gaps in s. A negative gap counts as 0.
func MomentsOf(gaps []float64) Moments {
	var all sums
	for i, y := range gaps {
		y = max(0, y)
		one := sums{n: 1, mean: y}
		if i > 0 {
			one.pairs, one.meanX, one.meanY = 1, max(0, gaps[i-1]), y
		}
		all = join(all, one)
	}
	return all.moments()
}
