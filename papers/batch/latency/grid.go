package latency

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/mat"
)

// A grid divides the time from 0 to the timeout into panels, each with the same number
// of Gauss-Legendre nodes. It is symmetric: if t is a node, T − t is one. Panels are
// short at the ends, where probabilities change as fast as requests come. Inwards each
// panel is twice as long as the one before, because fast changes have died out there: a
// timeout of a million gaps needs 40 panels.
type grid struct {
	timeout float64
	edges   []float64 // of the panels; one more than panels
	level   []int     // panel i is 2^level[i] times the shortest
	times   []float64 // of nodes, in order
	weights []float64 // for integrals over [0, T]
}

const (
	// nodes is the number of nodes in a panel.
	nodes = 8
	// shortest is the maximum length of the shortest panel, in steps of uniformisation.
	shortest = 1.5
)

// rule is the Gauss-Legendre rule on [0, 1]. antiderivative[p] has one factor for the
// value of a function at each node. The sum is the coefficient of x^p in the integral
// from 0 to x of the polynomial through these values.
var rule = newRule()

type quadrature struct {
	at, weights    [nodes]float64
	antiderivative [nodes + 1][nodes]float64
}

func newRule() *quadrature {
	r := &quadrature{}
	quad.Legendre{}.FixedLocations(r.at[:], r.weights[:], 0, 1)
	powers := mat.NewDense(nodes, nodes, nil)
	for i, x := range r.at {
		for p := range nodes {
			powers.Set(i, p, math.Pow(x, float64(p)))
		}
	}
	var inverse mat.Dense
	_ = inverse.Inverse(powers) // Its condition number leaves ten digits.
	for p := range nodes {
		for i := range nodes {
			r.antiderivative[p+1][i] = inverse.At(p, i) / float64(p+1)
		}
	}
	return r
}

// newGrid divides [0, timeout] for events at the given rate. It cuts each panel into
// cuts equal ones.
func newGrid(timeout, rate float64, cuts int) *grid {
	levels := 1
	if n := math.Log2(rate * timeout / (2 * shortest)); n > 0 {
		levels += int(math.Ceil(n))
	}
	// Panels 0, 1, …, levels − 1 of half the time are 1, 1, 2, 4, … of the shortest.
	width := timeout / 2 / math.Exp2(float64(levels-1)) / float64(cuts)
	g := &grid{timeout: timeout, edges: []float64{0}}
	for i := range levels * cuts {
		g.level = append(g.level, max(0, i/cuts-1))
	}
	for i := len(g.level) - 1; i >= 0; i-- {
		g.level = append(g.level, g.level[i])
	}
	at := 0.0
	for i, l := range g.level {
		w := width * math.Exp2(float64(l))
		for n := range nodes {
			g.times = append(g.times, at+w*rule.at[n])
			g.weights = append(g.weights, w*rule.weights[n])
		}
		at += w
		if i == len(g.level)-1 {
			at = timeout
		}
		g.edges = append(g.edges, at)
	}
	return g
}

// width is the width of the shortest panel.
func (g *grid) width() float64 { return g.edges[1] }

// panel returns the panel that contains t, which lies between 0 and the timeout.
func (g *grid) panel(t float64) int {
	low, high := 0, len(g.level)-1
	for low < high {
		middle := (low + high + 1) / 2
		if t >= g.edges[middle] {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// curve is the integral from 0 on of a density on the grid.
type curve struct {
	*grid
	total, mean float64 // the integrals of the density and of t times the density
	// coefficients has for each panel the integral as a polynomial of t's place in the
	// panel, from 0 to 1.
	coefficients [][nodes + 1]float64
}

// integrate returns the curve of a density that has the given values at the nodes. Its
// integral is known to be total; a factor corrects the polynomials' error.
func (g *grid) integrate(density []float64, total float64) curve {
	c := curve{grid: g, coefficients: make([][nodes + 1]float64, len(g.level))}
	sum := 0.0
	for i, d := range density {
		sum += g.weights[i] * d
	}
	if !(sum > 0) || total <= 0 {
		return c
	}
	c.total = total
	factor, at := total/sum, 0.0
	for i := range g.level {
		w := (g.edges[i+1] - g.edges[i]) * factor
		values := density[i*nodes : (i+1)*nodes]
		to := &c.coefficients[i]
		for p := 1; p <= nodes; p++ {
			s := 0.0
			for n, v := range values {
				s += rule.antiderivative[p][n] * v
			}
			to[p] = s * w
		}
		to[0] = at
		for n, v := range values {
			at += w * rule.weights[n] * v
			c.mean += w * rule.weights[n] * v * g.times[i*nodes+n]
		}
	}
	return c
}

// within is the density's integral up to t.
func (c *curve) within(t float64) float64 {
	if t <= 0 || c.total == 0 {
		return 0
	}
	if t >= c.timeout {
		return c.total
	}
	i := c.panel(t)
	x := (t - c.edges[i]) / (c.edges[i+1] - c.edges[i])
	p := &c.coefficients[i]
	sum := p[nodes]
	for k := nodes - 1; k >= 0; k-- {
		sum = sum*x + p[k]
	}
	return sum
}
