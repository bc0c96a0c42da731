package latency

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/faas-infer/faas-infer/batching/arrival"
)

// Analysis knows how requests of one arrival process wait in buffers, of whatever
// batch size, timeout and execution times. What does not depend on the batch size is
// kept for the last timeout, so whoever tries many of both goes through the timeouts
// in the outer loop. It is not safe for concurrent use.
type Analysis struct {
	arrivals arrival.MAP
	batch    int // the largest
	chain    *chain
	// embedded is (−D0)⁻¹D1, the phase at the next request; requests is D1 and leaving
	// its rows' sums.
	embedded, requests, leaving []float64
	last                        *forming
	// What follows is room for a call of Waits: α, what until computes, and the
	// densities by batch size.
	alpha, joined []float64
	densities     [][]float64
}

// NewAnalysis is for batches of up to maxBatch. It fails if the arrivals are not
// valid, or the batch size.
func NewAnalysis(m arrival.MAP, maxBatch int) (*Analysis, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if err := checkForming(maxBatch, 0); err != nil {
		return nil, err
	}
	n := m.Order()
	a := &Analysis{arrivals: m, batch: maxBatch, chain: newChain(m, max(1, maxBatch-1)), leaving: make([]float64, n)}
	embedded := m.Embedded()
	for i := range n {
		for j := range n {
			a.embedded = append(a.embedded, max(0, embedded.At(i, j)))
			a.requests = append(a.requests, m.D1.At(i, j))
			a.leaving[i] += m.D1.At(i, j)
		}
	}
	return a, nil
}

// longestTimeout is the longest one, in steps of the fastest phase.
const longestTimeout = 1e12

// checkTimeout reports a timeout that is too long to divide.
func (a *Analysis) checkTimeout(timeout float64) error {
	if a.chain.rate*timeout <= longestTimeout {
		return nil
	}
	return fmt.Errorf("buffer: a timeout of %v s: with up to %.3g requests or changes of phase per second, more than %.3g shortest gaps: give at most %.3g s", timeout, a.chain.rate, longestTimeout, longestTimeout/a.chain.rate)
}

// forming is what happens up to a timeout, whatever the batch size: the blocks N_l at
// each of the grid's nodes, and from them, by the phase before, the probability of l
// requests (open) and of one more right then (closing); end is N_l(T).
type forming struct {
	*grid
	at            []blocks
	open, closing [][]float64 // by node, then l, then phase
	end           blocks
}

// forming computes it. The blocks of each panel's start are those of the one before
// and its width together; the blocks of a panel twice as wide are those of the
// narrower one, twice.
func (a *Analysis) forming(timeout float64, cuts int) *forming {
	c := a.chain
	f := &forming{grid: newGrid(timeout, c.rate, cuts)}
	times := make([]float64, 0, nodes+1)
	for _, x := range rule.at {
		times = append(times, x*f.width())
	}
	steps := [][]blocks{c.after(append(times, f.width()))}
	for range slices.Max(f.level) {
		narrow := steps[len(steps)-1]
		wide := make([]blocks, len(narrow))
		for i, b := range narrow {
			wide[i] = c.zero()
			c.product(wide[i], b, b)
		}
		steps = append(steps, wide)
	}
	start, spare := c.identity(), c.zero()
	for _, level := range f.level {
		for _, step := range steps[level][:nodes] {
			b := c.zero()
			c.product(b, start, step)
			f.add(c, b, a.leaving)
		}
		c.product(spare, start, steps[level][nodes])
		start, spare = spare, start
	}
	f.end = start
	return f
}

// add adds a node.
func (f *forming) add(c *chain, b blocks, leaving []float64) {
	open, closing := make([]float64, c.count*c.order), make([]float64, c.count*c.order)
	for i := range open {
		for j, v := range b[i*c.order : (i+1)*c.order] {
			open[i] += v
			closing[i] += v * leaving[j]
		}
	}
	f.at, f.open, f.closing = append(f.at, b), append(f.open, open), append(f.closing, closing)
}

// start finds α = αP with P = [Σ_{l≤B−2} N_l(T) + A_{B−1}(T)]·(−D0)⁻¹D1, where
// A_n(T) = ∫₀ᵀ N_{n−1}(u)D1 du is the phase at the n-th request, if that comes by T.
// Since N_l' = N_l·D0 + N_{l−1}·D1, A_n = (A_{n−1} − N_{n−1}(T))·(−D0)⁻¹D1, with
// A_0 = I: where n − 1 have come but not more, the n-th is still to come.
func (a *Analysis) start(batch int, end blocks) {
	m, size := a.chain.order, a.chain.size
	phase := make([]float64, size) // A_n
	for i := range m {
		phase[i*m+i] = 1
	}
	left := make([]float64, size) // Σ N_l
	for l := range batch - 1 {
		open := make([]float64, size)
		for i, v := range end[l*size : (l+1)*size] {
			left[i] += v
			open[i] = phase[i] - v
		}
		clear(phase)
		a.chain.accumulate(phase, open, a.embedded)
	}
	for i, v := range phase {
		left[i] += v
	}
	p := make([]float64, size)
	a.chain.accumulate(p, left, a.embedded)
	for i, v := range p {
		p[i] = max(0, v) // rounding
	}
	a.alpha = arrival.Stationary(mat.NewDense(m, m, p))
}

// fill computes the densities of waits at the nodes, by the size of the batch.
func (a *Analysis) fill(batch int, f *forming) {
	m, n := a.chain.order, len(f.at)
	for len(a.densities) < batch {
		a.densities = append(a.densities, nil)
	}
	for k := range batch {
		a.densities[k] = slices.Grow(a.densities[k][:0], n)[:n]
		clear(a.densities[k])
	}
	for i := range n {
		// Node i is the time from 0 to the request, its mirror the request's wait.
		came, joined := a.until(batch, f.at[i])
		mirror := n - 1 - i
		open, closing := f.open[mirror], f.closing[mirror]
		for k := 1; k < batch-1; k++ {
			a.densities[k][mirror] = convolve(joined, open, k, m)
		}
		a.densities[batch-1][mirror] = convolve(came, closing, batch-1, m)
	}
}

// convolve is Σ_{j<n} left_j·right_{n−1−j} of vectors of m.
func convolve(left, right []float64, n, m int) float64 {
	sum := 0.0
	for j := range n {
		r := right[(n-1-j)*m:]
		for i, v := range left[j*m : (j+1)*m] {
			sum += v * r[i]
		}
	}
	return sum
}

// until is, for j = 0, 1, … B − 2, the phase αA_j(t) of a batch's j-th further
// request if that has come by t, and αN_j(t)D1, one where it comes at t after j.
func (a *Analysis) until(batch int, at blocks) (came, joined []float64) {
	m, size := a.chain.order, a.chain.size
	room := 2*batch*m + 2*m
	a.joined = slices.Grow(a.joined[:0], room)[:room]
	clear(a.joined)
	came, joined = a.joined[:batch*m], a.joined[batch*m:2*batch*m]
	here, open := a.joined[2*batch*m:][:m], a.joined[2*batch*m+m:]
	copy(came, a.alpha)
	for j := range batch - 1 {
		clear(here)
		block := at[j*size : (j+1)*size]
		for i, p := range a.alpha {
			for k, v := range block[i*m : (i+1)*m] {
				here[k] += p * v
			}
		}
		for i, v := range here {
			open[i] = came[j*m+i] - v
		}
		next := came[(j+1)*m:]
		for i := range m {
			for k := range m {
				joined[j*m+k] += here[i] * a.requests[i*m+k]
				next[k] += open[i] * a.embedded[i*m+k]
			}
		}
	}
	return came, joined
}
