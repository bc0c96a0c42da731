package latency

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// walk is a Markov chain of batches. A batch's state is the time from its departure from
// the buffer until its instance is free and a c-th of its own execution is over, with
// the phase at its departure: r·m + i for r steps and phase i. The state of the batch c
// later depends on nothing else.
type walk struct {
	Pool
	poolGrid
	kernels
	order int
	// rise is the maximum number of levels that the walk rises in c batches. part is the
	// maximum rise by the batch's own c-th.
	rise, part int
	// shares[k][u] is the part of the batches of k + 1 for which a c-th of the execution
	// takes u steps. own is the same for batches that do not fill, times the probability
	// of their sizes, by the phases at the batch's first request and at its departure.
	shares, own [][]float64
	// stationary is the walk's distribution.
	stationary []float64
}

func newWalk(p Pool, g poolGrid) *walk {
	w := &walk{Pool: p, poolGrid: g, kernels: p.kernels(g), order: p.Arrivals.Order(), rise: p.up(g), part: p.share(g)}
	for k := range p.Batch {
		w.shares = append(w.shares, w.executed(p.Service[k]/float64(p.Instances)))
	}
	w.own = make([][]float64, w.order*w.order)
	for i := range w.own {
		w.own[i] = make([]float64, w.part+1)
		for k := range p.Batch - 1 {
			floats.AddScaled(w.own[i], p.Formed[k][i], w.shares[k])
		}
	}
	return w
}

// executed returns the distribution over steps of an execution time with the given mean.
func (w *walk) executed(mean float64) []float64 {
	at := make([]float64, w.part+1)
	put := func(time, mass float64) {
		x := min(time/w.step, float64(w.part)-1e-9)
		n := int(x)
		at[n] += mass * (1 - (x - float64(n)))
		at[n+1] += mass * (x - float64(n))
	}
	if w.Spread == 0 {
		put(mean, 1)
		return at
	}
	const most, step = longTail, 0.1
	sum := 0.0
	for z := -most; z <= most; z += step {
		sum += math.Exp(-z * z / 2)
	}
	for z := -most; z <= most; z += step {
		put(mean*math.Exp(w.Spread*(z-w.Spread/2)), math.Exp(-z*z/2)/sum)
	}
	return at
}

// value is the part of a kernel from phase i to j that is d steps long.
func (w *walk) value(k *kernel, i, j, d int) float64 {
	at := k.at[i*w.order+j]
	if d += w.offset; d < 0 || d >= len(at) {
		return 0
	}
	return at[d]
}

// falls returns, for each level r from 0 on, the part of a kernel that is at least r
// steps long. That part takes the walk from level r to a free instance.
func (w *walk) falls(k *kernel, i, j int) []float64 {
	out := make([]float64, w.levels)
	rest := k.total[i*w.order+j]
	for d := -w.offset; d < 0; d++ {
		rest -= w.value(k, i, j, d)
	}
	for r := range out {
		out[r] = max(0, rest)
		rest -= w.value(k, i, j, r)
	}
	return out
}

// transitions returns the walk's transition probabilities, row by row.
func (w *walk) transitions() [][]float64 {
	m := w.order
	rows := make([][]float64, w.levels*m)
	all := make([]float64, len(rows)*len(rows))
	for i := range rows {
		rows[i] = all[i*len(rows) : (i+1)*len(rows)]
	}
	full := w.shares[w.Batch-1]
	for i := range m {
		for to := range m {
			steps := w.steps(i, to)
			for r := range w.levels {
				row := rows[r*m+i]
				for level := w.part + 1; level <= r+w.rise; level++ {
					row[min(level, w.levels-1)*m+to] += steps[w.levels+level-r-1]
				}
			}
			for j := range m {
				if own := w.own[j*m+to]; w.Batch > 1 {
					w.low(rows, i, to, &w.open, j, own)
				}
			}
			w.low(rows, i, to, &w.full, to, full)
		}
	}
	return rows
}

// steps returns the probabilities of the walk's steps from phase i to phase to, far from
// level 0. They are indexed by the rise in levels, from −(levels − 1) on.
func (w *walk) steps(i, to int) []float64 {
	out := make([]float64, w.levels+w.rise)
	full := w.shares[w.Batch-1]
	for n := range out {
		up := n - w.levels + 1
		for u := range w.part + 1 {
			out[n] += w.value(&w.full, i, to, u-up) * full[u]
			if w.Batch == 1 {
				continue
			}
			for j := range w.order {
				out[n] += w.value(&w.open, i, j, u-up) * w.own[j*w.order+to][u]
			}
		}
	}
	return out
}

// low adds the transitions to the levels that a batch's own part alone can reach. They
// are sums over the wait for an instance, in steps; 0 means that one is free.
func (w *walk) low(rows [][]float64, i, to int, k *kernel, j int, own []float64) {
	m, falls := w.order, w.falls(k, i, j)
	for r := range w.levels {
		row := rows[r*m+i]
		for wait := 0; wait <= min(w.part, r+w.offset); wait++ {
			mass := falls[r]
			if wait > 0 {
				mass = w.value(k, i, j, r-wait)
			}
			if mass == 0 {
				continue
			}
			for u := 0; u <= w.part-wait; u++ {
				row[min(wait+u, w.levels-1)*m+to] += mass * own[u]
			}
		}
	}
}

// solve finds the stationary distribution. It eliminates one state after the other, the
// highest first, without a subtraction (Grassmann, Taksar and Heyman 1985). A level is
// reached from at most rise levels below, so few rows change.
func (w *walk) solve() *walk {
	m, rows := w.order, w.transitions()
	band := (w.rise + 1) * m
	lowest := 0
	for n := len(rows) - 1; n > 0; n-- {
		leave := floats.Sum(rows[n][:n])
		if leave <= 0 {
			lowest = n // The walk never goes below n.
			break
		}
		for i := max(0, n-band); i < n; i++ {
			if v := rows[i][n]; v > 0 {
				rows[i][n] = v / leave
				floats.AddScaled(rows[i][:n], v/leave, rows[n][:n])
			}
		}
	}
	w.stationary = make([]float64, len(rows))
	w.stationary[lowest] = 1
	for n := lowest + 1; n < len(rows); n++ {
		for i := max(lowest, n-band); i < n; i++ {
			w.stationary[n] += w.stationary[i] * rows[i][n]
		}
	}
	floats.Scale(1/floats.Sum(w.stationary), w.stationary)
	return w
}

// beyond is the part of the batches at the highest level.
func (w *walk) beyond() float64 { return floats.Sum(w.stationary[(w.levels-1)*w.order:]) }
