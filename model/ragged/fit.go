package ragged

import "math"

const (
	// decay is how much less an observation counts with each later one: some hundred count.
	decay = 0.99
	// believed is how many observations the prior counts as.
	believed = 2.0
)

// prior is the cost before any run has been seen, in the time of a token: a run costs as much as 16 tokens, and
// attention of a token to 2,048 others as much as the rest of a token. Only the ratios matter, and the first runs
// correct them.
func prior(rows, length int) [3]float64 {
	x := features(rows, length)
	return [3]float64{16 * x[0], x[1], x[2] / 2048}
}

// features are what a run's time is a sum of: 1, its tokens, and the pairs of tokens that attend to each other.
func features(rows, length int) [3]float64 {
	tokens := float64(rows) * float64(length)
	return [3]float64{1, tokens, tokens * float64(length)}
}

// supports are the runs at which the prior counts as observed.
var supports = [...][2]int{{1, 8}, {1, 64}, {1, 512}, {8, 16}, {8, 128}, {32, 64}}

// Fit is the time of a run as overhead + a·tokens + b·tokens·length, fitted to runs by least squares of relative
// errors. None of the three is negative. Its zero value is ready; it is not safe for concurrent use.
type Fit struct {
	// products are the sums of the products of features, targets those of features and 1; both with the features
	// divided by the run's time.
	products [3][3]float64
	targets  [3]float64
	// ratios are the sum of the logarithms of time over prior, and their weight.
	ratios, weight float64
	// coefficients are the last ones that were solved for; solved says that they hold.
	coefficients [3]float64
	solved       bool
}

// Observe adds a run that took a time, in any unit that is always the same.
func (f *Fit) Observe(rows, length int, took float64) {
	if rows < 1 || length < 1 || !(took > 0) || math.IsInf(took, 0) {
		return
	}
	f.solved = false
	p := prior(rows, length)
	f.ratios = f.ratios*decay + math.Log(took/(p[0]+p[1]+p[2]))
	f.weight = f.weight*decay + 1
	for i := range 3 {
		f.targets[i] *= decay
		for j := range 3 {
			f.products[i][j] *= decay
		}
	}
	x := features(rows, length)
	for i := range x {
		x[i] /= took
	}
	accumulate(&f.products, &f.targets, x, 1)
}

func accumulate(products *[3][3]float64, targets *[3]float64, x [3]float64, weight float64) {
	for i := range 3 {
		targets[i] += weight * x[i]
		for j := range 3 {
			products[i][j] += weight * x[i] * x[j]
		}
	}
}

// Cost returns the fitted cost, the prior one without observations.
func (f *Fit) Cost() Cost {
	if !f.solved {
		f.solve()
	}
	c := f.coefficients
	return func(rows, length int) float64 {
		x := features(rows, length)
		return c[0]*x[0] + c[1]*x[1] + c[2]*x[2]
	}
}

// solve computes the coefficients from the observations and the prior, which is scaled to them.
func (f *Fit) solve() {
	scale := 1.0
	if f.weight > 0 {
		scale = math.Exp(f.ratios / f.weight)
	}
	products, targets := f.products, f.targets
	for _, at := range supports {
		p := prior(at[0], at[1])
		took := scale * (p[0] + p[1] + p[2])
		x := features(at[0], at[1])
		for i := range x {
			x[i] /= took
		}
		accumulate(&products, &targets, x, believed/float64(len(supports)))
	}
	f.coefficients, f.solved = nonNegative(products, targets), true
}

// nonNegative minimises c·P·c - 2·t·c over c of which none is negative: it tries every set of coefficients that
// are not 0.
func nonNegative(products [3][3]float64, targets [3]float64) (best [3]float64) {
	lowest := math.Inf(1)
	for set := 1; set < 8; set++ {
		c, ok := solve(products, targets, set)
		if !ok || c[0] < 0 || c[1] < 0 || c[2] < 0 {
			continue
		}
		loss := 0.0
		for i := range 3 {
			loss -= 2 * targets[i] * c[i]
			for j := range 3 {
				loss += c[i] * products[i][j] * c[j]
			}
		}
		if loss < lowest {
			lowest, best = loss, c
		}
	}
	return best
}

// solve solves the normal equations of the coefficients in set, a set of bits, by Gauss' elimination. They are
// scaled first: the features differ by powers of ten.
func solve(products [3][3]float64, targets [3]float64, set int) (c [3]float64, ok bool) {
	var at []int
	for i := range 3 {
		if set>>i&1 == 1 {
			at = append(at, i)
		}
	}
	n := len(at)
	var m [3][4]float64
	var scales [3]float64
	for i := range n {
		scales[i] = math.Sqrt(products[at[i]][at[i]])
		if scales[i] == 0 {
			return c, false
		}
	}
	for i := range n {
		for j := range n {
			m[i][j] = products[at[i]][at[j]] / (scales[i] * scales[j])
		}
		m[i][n] = targets[at[i]] / scales[i]
	}
	for i := range n {
		if m[i][i] < 1e-12 { // The matrix is positive: a small pivot means that features depend on each other.
			return c, false
		}
		for k := range n {
			if k == i {
				continue
			}
			factor := m[k][i] / m[i][i]
			for j := i; j <= n; j++ {
				m[k][j] -= factor * m[i][j]
			}
		}
	}
	for i := range n {
		c[at[i]] = m[i][n] / m[i][i] / scales[i]
	}
	return c, true
}
