package latency

import (
	"cmp"
	"math"
	"slices"
)

// Distribution is the distribution of requests' latencies in s: wait plus execution.
// It is safe for concurrent use.
type Distribution struct {
	batches   []float64
	meanBatch float64
	parts     []part
	atoms     []atom
	smooth    []smooth
	low, high float64
	mean      float64
}

// part describes requests whose waits have the distribution waits and whose execution
// takes shift seconds. weight times the total of waits is their part of all requests.
type part struct {
	shift, weight float64
	waits         waits
}

// waits is a continuous distribution of waits.
type waits interface {
	// within is the part of the total that waits at most t.
	within(t float64) float64
	// moments returns the total, the total times the mean wait, and the longest wait.
	moments() (total, mean, longest float64)
}

func (c *curve) moments() (float64, float64, float64) {
	if c.total == 0 { // it may have no grid
		return 0, 0, 0
	}
	return c.total, c.mean, c.timeout
}

// atom describes requests that all take the same time.
type atom struct{ at, mass float64 }

// smooth describes requests that all wait for the same time. Their execution time then
// has the distribution takes.
type smooth struct {
	wait, mass float64
	takes      takes
}

// takes is the distribution of a time.
type takes interface {
	within(t float64) float64
	mean() float64
}

// same is the relative difference up to which two latencies count as equal, because of
// rounding: 12 ms + 100 ms is 112 ms.
const same = 1e-9

func newDistribution(batches []float64, mean float64) *Distribution {
	return &Distribution{batches: slices.Clone(batches), meanBatch: mean, low: math.Inf(1)}
}

func (d *Distribution) add(shift, weight float64, w waits) {
	total, mean, longest := w.moments()
	if total*weight <= 0 {
		return
	}
	d.parts = append(d.parts, part{shift, weight, w})
	d.low, d.high = min(d.low, shift), max(d.high, shift+longest)
	d.mean += weight * (total*shift + mean)
}

func (d *Distribution) addAtom(at, mass float64) {
	if mass <= 0 {
		return
	}
	d.atoms = append(d.atoms, atom{at, mass})
	d.low, d.high = min(d.low, at), max(d.high, at)
	d.mean += at * mass
}

func (d *Distribution) addSmooth(s smooth) {
	if s.mass <= 0 {
		return
	}
	d.smooth = append(d.smooth, s)
	d.low = min(d.low, s.wait)
	d.high = max(d.high, s.wait+2*s.takes.mean())
	d.mean += s.mass * (s.wait + s.takes.mean())
}

// ready sorts the atoms and joins equal ones.
func (d *Distribution) ready() *Distribution {
	slices.SortFunc(d.atoms, func(a, b atom) int { return cmp.Compare(a.at, b.at) })
	joined := d.atoms[:0]
	for _, a := range d.atoms {
		if n := len(joined); n > 0 && a.at*(1-same) <= joined[n-1].at {
			joined[n-1].mass += a.mass
			continue
		}
		joined = append(joined, a)
	}
	d.atoms = joined
	return d
}

// CDF is F_R(t), the part of the requests that take t seconds or less. A latency that
// is a billionth longer than t counts as t.
func (d *Distribution) CDF(t float64) float64 {
	sum := d.continuous(t)
	for _, a := range d.atoms {
		if t < a.at*(1-same) {
			break
		}
		sum += a.mass
	}
	return min(1, max(0, sum))
}

// continuous is F_R without atoms.
func (d *Distribution) continuous(t float64) float64 {
	sum := 0.0
	for i := range d.parts {
		if p := &d.parts[i]; t > p.shift {
			sum += p.weight * p.waits.within(t-p.shift)
		}
	}
	for i := range d.smooth {
		if s := &d.smooth[i]; t > s.wait {
			sum += s.mass * s.takes.within(t-s.wait)
		}
	}
	return sum
}

const (
	// extreme is how close to 0 and 1 a quantile's q may be: sums have no more digits.
	extreme = 1e-12
	// exact is the relative error of a quantile.
	exact = 1e-8
)

// Quantile is the least t in s for which at least the part q of the requests takes t or
// less. If many requests take the same time, such as the first requests of batches that
// do not fill, it is that time. A q of 0 or less gives the least latency. A q of 1 or
// more, or NaN, gives the largest.
func (d *Distribution) Quantile(q float64) float64 {
	if !(q < 1-extreme) {
		q = 1 - extreme
	}
	q = max(q, extreme)
	i, _ := slices.BinarySearchFunc(d.atoms, q, func(a atom, q float64) int {
		if d.CDF(a.at) < q {
			return -1
		}
		return 1
	})
	low, high := d.low, d.high
	if i > 0 {
		low = max(low, d.atoms[i-1].at)
	}
	if i < len(d.atoms) {
		high = d.atoms[i].at
		if d.CDF(high)-d.atoms[i].mass < q {
			return high
		}
	}
	return d.between(q, low, high)
}

// between finds the t at which F_R reaches q; F_R has no steps between low and high. It
// uses regula falsi with the Illinois rule, which halves the value at the end that
// stays. Every third step is a bisection.
func (d *Distribution) between(q, low, high float64) float64 {
	for len(d.smooth) > 0 && d.CDF(high) < q && high < math.MaxFloat64/4 {
		high *= 2
	}
	below, above := d.CDF(low)-q, d.CDF(high)-q
	if below >= 0 {
		return low
	}
	if above <= 0 {
		return high
	}
	stayed := 0
	for n := 1; high-low > exact*high; n++ {
		t := (low + high) / 2
		if regula := low + (high-low)*below/(below-above); n%3 != 0 && regula > low && regula < high {
			t = regula
		}
		off := d.CDF(t) - q
		if math.Abs(off) < extreme {
			return t
		}
		if off < 0 {
			low, below = t, off
			if stayed > 0 {
				above /= 2
			}
			stayed = 1
		} else {
			high, above = t, off
			if stayed < 0 {
				below /= 2
			}
			stayed = -1
		}
	}
	return high
}

// Mean is the mean latency in s.
func (d *Distribution) Mean() float64 { return d.mean }

// MeanBatch is the mean batch size.
func (d *Distribution) MeanBatch() float64 { return d.meanBatch }

// Batches returns π_k, the part of the batches that have k = 1, 2, … requests.
func (d *Distribution) Batches() []float64 { return slices.Clone(d.batches) }
