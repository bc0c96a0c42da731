package delay

import "math"

// Noise is the distribution of a round trip around its mean, as a table.
type Noise struct {
	// low and high hold all values but one in 10 million on either side. step is the
	// distance of the table's entries.
	low, high, step float64
	cdf             []float64
	// deviation is the normal part's, which says how finely the distribution must be
	// integrated. It is 0 where there is no noise.
	deviation float64
}

// noiseSteps is the number of steps of a table. A line between its entries is within
// 0.0002 of the distribution function.
const noiseSteps = 512

func newNoise(r RoundTrip) *Noise {
	m := r.Moments()
	if m.Variance == 0 {
		return &Noise{}
	}
	spread := math.Sqrt(m.Variance)
	cdf := func(x float64) float64 { return r.CDF(m.Mean + x) }
	n := &Noise{low: bisect(cdf, 1e-7, 0, spread), high: bisect(cdf, 1-1e-7, 0, spread), deviation: max(r.scale, spread/20)}
	n.step = (n.high - n.low) / noiseSteps
	for i := range noiseSteps + 1 {
		n.cdf = append(n.cdf, cdf(n.low+float64(i)*n.step))
	}
	return n
}

// at returns the probability of a value of at most x.
func (n *Noise) at(x float64) float64 {
	switch {
	case x >= n.high:
		return 1
	case x < n.low:
		return 0
	}
	f := (x - n.low) / n.step
	i := min(int(f), noiseSteps-1)
	return n.cdf[i] + (f-float64(i))*(n.cdf[i+1]-n.cdf[i])
}

// noiseGrid is the relative step of a noise's parameters between which [Noises] makes no
// difference. The mean of a delay is not rounded.
const noiseGrid = 0.02

// Noises keeps the tables of noises. The zero value of a key's parameter means that the
// noise does not have it.
type Noises map[[4]int32]*Noise

// Of returns the noise of a round trip. Round trips whose noise differs by less than
// noiseGrid share one.
func (t Noises) Of(r RoundTrip) *Noise {
	var key [4]int32
	scale := rounded(r.scale, &key[0])
	exps := make([]float64, len(r.exps))
	for i, theta := range r.exps {
		exps[i] = rounded(theta, &key[i+1])
	}
	table := t[key]
	if table == nil {
		table = newNoise(newRoundTrip(0, scale, exps...))
		t[key] = table
	}
	return table
}

// rounded returns x on a grid of noiseGrid, and the key of its place there.
func rounded(x float64, key *int32) float64 {
	if x == 0 {
		return 0
	}
	n := math.Round(math.Log(math.Abs(x)) / noiseGrid)
	// Positive values have odd keys, negative ones even keys that are not 0.
	*key = 4*int32(n) + 1
	if x < 0 {
		*key++
	}
	return math.Copysign(math.Exp(n*noiseGrid), x)
}

// Delay is a random time: a mean and the noise around it.
type Delay struct {
	// Mean is in ms.
	Mean float64
	// Noise comes from [Noises].
	Noise *Noise
}

// Largest is the distribution of the largest of a constant and several independent delays.
// Delays with one distribution make it their n-th order statistic (§IV-A).
type Largest struct {
	// Floor is the constant in ms. Without one it is minus infinity.
	Floor  float64
	Delays []Delay
}

// bounds returns the range outside of which the largest is not, and the finest deviation
// inside.
func (l *Largest) bounds() (low, high, deviation float64) {
	low, high, deviation = l.Floor, l.Floor, math.Inf(1)
	for _, d := range l.Delays {
		low, high = max(low, d.Mean+d.Noise.low), max(high, d.Mean+d.Noise.high)
	}
	for _, d := range l.Delays {
		if d.Mean+d.Noise.high > low {
			deviation = min(deviation, d.Noise.deviation)
		}
	}
	return low, high, deviation
}

// CDF returns the probability that the largest is at most x.
func (l *Largest) CDF(x float64) float64 {
	if x < l.Floor {
		return 0
	}
	p := 1.0
	for _, d := range l.Delays {
		p *= d.Noise.at(x - d.Mean)
	}
	return p
}

// Moments returns the mean, variance and tail. It integrates 1 - Fⁿ and its products with
// the time.
func (l *Largest) Moments() Moments {
	low, high, deviation := l.bounds()
	if high <= low {
		return Moments{Mean: low}
	}
	// Simpson's rule needs an even number of steps.
	steps := 2 * min(200, max(8, int(math.Ceil((high-low)/deviation*1.5))))
	h := (high - low) / float64(steps)
	var first, second, third float64
	rarely := high
	// Delays that never exceed low do not count.
	reach := make([]Delay, 0, 16)
	for _, d := range l.Delays {
		if d.Mean+d.Noise.high > low {
			reach = append(reach, d)
		}
	}
	for i := range steps + 1 {
		u := float64(i) * h
		p := 1.0
		for _, d := range reach {
			p *= d.Noise.at(low + u - d.Mean)
		}
		if p >= rare && rarely == high {
			rarely = low + u
		}
		weight := 2.0
		if i%2 == 1 {
			weight = 4
		} else if i == 0 || i == steps {
			weight = 1
		}
		tail := weight * (1 - p)
		first += tail
		second += 2 * u * tail
		third += 3 * u * u * tail
	}
	first, second, third = first*h/3, second*h/3, third*h/3
	m := newMoments(low+first, max(0, second-first*first), third-3*first*second+2*first*first*first)
	return m.withRare(rarely)
}

// Quantile returns the value that the largest stays below with probability q.
func (l *Largest) Quantile(q float64) float64 {
	low, high, _ := l.bounds()
	for range 60 {
		if m := (low + high) / 2; l.CDF(m) < q {
			low = m
		} else {
			high = m
		}
	}
	return high
}
