package latency

import (
	"fmt"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// Analysis calculates how requests of one arrival process wait in buffers of any batch
// size and timeout. It keeps the results that do not depend on the batch size for the
// last timeout. So loop over timeouts outside and over batch sizes inside. It is not
// safe for concurrent use.
type Analysis struct {
	arrivals arrival.MAP
	batch    int // the largest
	chain    *chain
	// embedded is (−D0)⁻¹D1, the phase at the next request. requests is D1, and leaving
	// has the sums of its rows.
	embedded, requests, leaving []float64
	last                        *forming
	// The fields below are buffers for a call of Waits: α, the results of until, and
	// the densities by batch size.
	alpha, here, came, joined []float64
	from, to                  []float64
	densities                 [][]float64
}

// NewAnalysis returns an Analysis for batches of up to maxBatch. It fails if the
// arrivals or the batch size are not valid.
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

// Counts returns the probabilities of 0, 1, … batch − 2 requests within a timeout in s, if alpha is the
// distribution of the phases at its beginning. It fails if batch or timeout are not valid.
func (a *Analysis) Counts(alpha []float64, batch int, timeout float64) ([]float64, error) {
	if err := checkForming(batch, timeout); err != nil {
		return nil, err
	}
	if err := a.checkTimeout(timeout); err != nil {
		return nil, err
	}
	end, counts := a.chain.until(timeout), make([]float64, batch-1)
	for k := range counts {
		counts[k] = a.chain.requests(alpha, end, k)
	}
	return counts, nil
}

// longestTimeout is the longest timeout, in steps of the fastest phase.
const longestTimeout = 1e12

// checkTimeout reports a timeout that is too long to divide.
func (a *Analysis) checkTimeout(timeout float64) error {
	if a.chain.rate*timeout <= longestTimeout {
		return nil
	}
	return fmt.Errorf("buffer: a timeout of %v s is longer than %.3g of the shortest gaps, with up to %.3g requests or changes of phase per second: give at most %.3g s", timeout, longestTimeout, a.chain.rate, longestTimeout/a.chain.rate)
}

// forming describes what happens up to a timeout, for any batch size. at has the blocks
// N_l at each of the grid's nodes. From them follow, for each phase before, the
// probability of l = 0, 1, … requests (open) and that probability times the rate of
// one more right then (closing). end is N_l(T).
type forming struct {
	*grid
	at            []blocks
	open, closing [][]float64 // by node; see phase for the layout
	end           blocks
}

// phase returns phase i's part of a vector that has count entries for each phase.
func (c *chain) phase(v []float64, i int) []float64 { return v[i*c.count : (i+1)*c.count] }

// forming calculates the forming of a timeout. The blocks at each panel's start are the
// product of those at the start of the panel before and those of its width. The blocks
// of a panel twice as wide are the square of the narrower one's.
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

// add adds a node with blocks b.
func (f *forming) add(c *chain, b blocks, leaving []float64) {
	open, closing := make([]float64, c.count*c.order), make([]float64, c.count*c.order)
	for i := range c.order {
		for j := range c.order {
			floats.Add(c.phase(open, i), c.entry(b, i, j))
			floats.AddScaled(c.phase(closing, i), leaving[j], c.entry(b, i, j))
		}
	}
	f.at, f.open, f.closing = append(f.at, b), append(f.open, open), append(f.closing, closing)
}

// start finds α = αP with P = [Σ_{l≤B−2} N_l(T) + A_{B−1}(T)]·(−D0)⁻¹D1. Here
// A_n(T) = ∫₀ᵀ N_{n−1}(u)D1 du is the phase at the n-th request, if that comes by T.
// Since N_l' = N_l·D0 + N_{l−1}·D1, A_n = (A_{n−1} − N_{n−1}(T))·(−D0)⁻¹D1, with
// A_0 = I: if exactly n − 1 requests have come by T, the n-th has not.
func (a *Analysis) start(batch int, end blocks) {
	c, m := a.chain, a.chain.order
	p := mat.NewDense(m, m, nil)
	open, came := make([]float64, m), make([]float64, m)
	for i := range m {
		row := make([]float64, m) // of Σ N_l + A_n
		clear(came)
		came[i] = 1
		for l := range batch - 1 {
			for j := range m {
				n := c.entry(end, i, j)[l]
				row[j] += n
				open[j] = came[j] - n
			}
			a.next(came, open)
		}
		floats.Add(row, came)
		a.next(came, row)
		for j, v := range came {
			p.Set(i, j, max(0, v)) // A negative v is rounding.
		}
	}
	a.alpha = arrival.Stationary(p)
}

// next sets to to the distribution of the phase at the next request, if from is the
// distribution now.
func (a *Analysis) next(to, from []float64) {
	clear(to)
	for i, v := range from {
		for j := range to {
			to[j] += v * a.embedded[i*len(from)+j]
		}
	}
}

// fill calculates the densities of waits at the nodes, by batch size.
func (a *Analysis) fill(batch int, f *forming) {
	n := len(f.at)
	for len(a.densities) < batch {
		a.densities = append(a.densities, nil)
	}
	for k := range batch {
		a.densities[k] = slices.Grow(a.densities[k][:0], n)[:n]
	}
	sums := make([]float64, batch)
	for i := range n {
		// Node i is the time from 0 to the request, its mirror the request's wait.
		mirror := n - 1 - i
		a.until(batch, f.at[i])
		a.waits(sums, f.open[mirror], f.closing[mirror])
		for k, v := range sums {
			a.densities[k][mirror] = v
		}
	}
}

// waits sets sums to the densities of a wait, by batch size, from the results of until
// and the arrivals during the wait. The density is Σ_j joined_j·open_{k−2−j} for a size
// of k, and Σ_j came_j·closing_{k−2−j} for the largest size.
func (a *Analysis) waits(sums, open, closing []float64) {
	c, last := a.chain, len(sums)-1
	clear(sums)
	for i := range c.order {
		joined, came := c.phase(a.joined, i), c.phase(a.came, i)
		for j := range last {
			if j+1 < last {
				floats.AddScaled(sums[j+1:last], joined[j], c.phase(open, i)[:last-1-j])
			}
			sums[last] += came[j] * c.phase(closing, i)[last-1-j]
		}
	}
}

// until finds two vectors for j = 0, 1, … B − 2. came is αA_j(t), the phase at a
// batch's j-th further request if that has come by t. joined is αN_j(t)D1, the phase
// at a request that comes at t after j others.
func (a *Analysis) until(batch int, at blocks) {
	c, m := a.chain, a.chain.order
	if a.joined == nil {
		a.joined, a.came, a.here = make([]float64, m*c.count), make([]float64, m*c.count), make([]float64, m*c.count)
		a.from, a.to = make([]float64, m), make([]float64, m)
	}
	clear(a.joined)
	clear(a.here)
	for i, p := range a.alpha {
		for j := range m {
			floats.AddScaled(c.phase(a.here, j), p, c.entry(at, i, j))
		}
	}
	for i := range m {
		for j := range m {
			floats.AddScaled(c.phase(a.joined, j), a.requests[i*m+j], c.phase(a.here, i))
		}
	}
	copy(a.to, a.alpha)
	for l := range batch - 1 {
		for i, v := range a.to {
			c.phase(a.came, i)[l] = v
			a.from[i] = v - c.phase(a.here, i)[l]
		}
		a.next(a.to, a.from)
	}
}
