package testbed

import (
	"math"
	"slices"
)

// monotone returns the values closest to ts, in the sum of squares, that never fall.
// Neighbours that fall get their mean (the pool-adjacent-violators algorithm): 20, 20,
// 19.25 become 20, 19.625, 19.625, and then all become 19.75.
func monotone(ts []float64) []float64 {
	type pool struct {
		mean float64
		n    int
	}
	var pools []pool
	for _, t := range ts {
		pools = append(pools, pool{t, 1})
		for len(pools) > 1 && pools[len(pools)-2].mean > pools[len(pools)-1].mean {
			a, b := pools[len(pools)-2], pools[len(pools)-1]
			n := a.n + b.n
			pools = append(pools[:len(pools)-2], pool{(a.mean*float64(a.n) + b.mean*float64(b.n)) / float64(n), n})
		}
	}
	out := make([]float64, 0, len(ts))
	for _, p := range pools {
		for range p.n {
			out = append(out, p.mean)
		}
	}
	return out
}

// fill returns the times of all batches up to the largest, from those of the measured
// batches. smaller are shares that are already filled; those of the same GPU share are in
// order of CPU.
func (s *share) fill(measured []float64, smaller []*share) []float64 {
	first := s.batches[0]
	all := make([]float64, s.batches[len(s.batches)-1])
	for b := range first {
		all[b] = measured[0] * s.part(b+1, measured, smaller)
	}
	for i := 1; i < len(measured); i++ {
		from, to := s.batches[i-1], s.batches[i]
		for b := from + 1; b <= to; b++ {
			all[b-1] = measured[i-1] + (measured[i]-measured[i-1])*float64(b-from)/float64(to-from)
		}
	}
	return all
}

// part returns the time of a batch of b, divided by that of the smallest measured batch. It
// is that of the next smaller share with both times. Without one, it is on the line through
// the two smallest measured batches, but at least proportional to b.
func (s *share) part(b int, measured []float64, smaller []*share) float64 {
	first := s.batches[0]
	for _, other := range slices.Backward(smaller) {
		t, ok := other.time(b)
		if whole, known := other.time(first); ok && known && other.gpu == s.gpu {
			return t / whole
		}
	}
	proportional := float64(b) / float64(first)
	if len(measured) == 1 {
		return proportional
	}
	slope := (measured[1] - measured[0]) / float64(s.batches[1]-first)
	return max(proportional, 1-slope*float64(first-b)/measured[0])
}

// group identifies the times that have one line.
type group struct{ millicores, batch int }

// spread returns the value of [Testbed.Spread], or [DefaultSpread] with fewer than
// minFreedom degrees of freedom.
func spread(configs []TestbedConfig) float64 {
	const minFreedom = 5
	groups := map[group][][2]float64{}
	var order []group
	for _, c := range configs {
		if c.GPU == 0 {
			continue
		}
		key := group{c.Millicores, c.Batch}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], [2]float64{math.Log(float64(c.GPU)), math.Log(c.Milliseconds)})
	}
	squares, freedom := 0.0, 0
	for _, key := range order {
		if points := groups[key]; len(points) > 2 {
			squares += residual(points)
			freedom += len(points) - 2
		}
	}
	if freedom < minFreedom {
		return DefaultSpread
	}
	return math.Sqrt(squares / float64(freedom))
}

// residual returns the sum of the squared residuals of the best line.
func residual(points [][2]float64) float64 {
	n := float64(len(points))
	var mx, my, xx, xy, yy float64
	for _, p := range points {
		mx += p[0] / n
		my += p[1] / n
	}
	for _, p := range points {
		xx += (p[0] - mx) * (p[0] - mx)
		xy += (p[0] - mx) * (p[1] - my)
		yy += (p[1] - my) * (p[1] - my)
	}
	return max(0, yy-xy*xy/xx)
}
