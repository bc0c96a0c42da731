package latency

import (
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// blocks are the matrices N_0, N_1, … of a time: N_l has the probabilities that l
// requests come in it, by the phase before and after. They are the first block row of
// e^{Qt} of Eq. 11, in which N_l stands wherever l more requests have come. For each
// pair of phases all l lie one after the other (see chain.entry), so products are sums
// of long vectors.
type blocks []float64

// tiny is the probability below which blocks count it as 0. It is beyond the digits of
// sums near 1, and if phases differ much, half of the work would be on such values.
const tiny = 1e-20

// chain does the arithmetic of blocks: count matrices of order×order each.
type chain struct {
	order, count int
	// rate is the rate of uniformisation: that of the fastest phase. stay and arrive are
	// the matrices I + D0/rate and D1/rate, row by row.
	rate         float64
	stay, arrive []float64
}

func newChain(m arrival.MAP, count int) *chain {
	n := m.Order()
	c := &chain{order: n, count: count, stay: make([]float64, n*n), arrive: make([]float64, n*n)}
	for i := range n {
		c.rate = max(c.rate, -m.D0.At(i, i))
	}
	for i := range n {
		for j := range n {
			c.stay[i*n+j] = m.D0.At(i, j) / c.rate
			c.arrive[i*n+j] = m.D1.At(i, j) / c.rate
		}
		c.stay[i*n+i] = 1 + m.D0.At(i, i)/c.rate
	}
	return c
}

func (c *chain) zero() blocks { return make(blocks, c.count*c.order*c.order) }

// entry has, for l = 0, 1, …, the probability of l requests and then phase j, from
// phase i.
func (c *chain) entry(b blocks, i, j int) []float64 {
	at := (i*c.order + j) * c.count
	return b[at : at+c.count]
}

// requests is the probability of l requests if phase is the distribution of the first
// phase.
func (c *chain) requests(phase []float64, b blocks, l int) float64 {
	sum := 0.0
	for i, p := range phase {
		for j := range c.order {
			sum += p * c.entry(b, i, j)[l]
		}
	}
	return sum
}

// identity returns the blocks of a time of 0.
func (c *chain) identity() blocks {
	b := c.zero()
	for i := range c.order {
		c.entry(b, i, i)[0] = 1
	}
	return b
}

// product sets dst to the blocks of the sum of the times of a and b:
// N_l(t + u) = Σ N_i(t)·N_{l−i}(u). dst must not be a or b.
func (c *chain) product(dst, a, b blocks) {
	clear(dst)
	for i := range c.order {
		for k := range c.order {
			for l, v := range c.entry(a, i, k) {
				if v == 0 {
					continue
				}
				for j := range c.order {
					floats.AddScaled(c.entry(dst, i, j)[l:], v, c.entry(b, k, j)[:c.count-l])
				}
			}
		}
	}
	flush(dst)
}

// flush sets entries below tiny to 0.
func flush(b blocks) {
	for i, v := range b {
		if v < tiny {
			b[i] = 0
		}
	}
}

// after returns the blocks of each of the times, which must be short. It uses
// uniformisation: N_l(t) = Σ_n e^{−qt}(qt)ⁿ/n!·K_l⁽ⁿ⁾, where K_l⁽ⁿ⁾ has the
// probabilities of l requests in n steps, and
// K_l⁽ⁿ⁺¹⁾ = K_l⁽ⁿ⁾·(I + D0/q) + K_{l−1}⁽ⁿ⁾·D1/q.
func (c *chain) after(times []float64) []blocks {
	all, weights := make([]blocks, len(times)), make([]float64, len(times))
	longest := 0.0
	for i, t := range times {
		all[i], weights[i] = c.zero(), math.Exp(-c.rate*t)
		longest = max(longest, c.rate*t)
	}
	steps, next, term := c.identity(), c.zero(), math.Exp(-longest)
	for n := 1; ; n++ {
		for i, b := range all {
			floats.AddScaled(b, weights[i], steps)
			weights[i] *= c.rate * times[i] / float64(n)
		}
		// Once each term is less than half of the one before, the rest sums to less
		// than twice the next term.
		if term *= longest / float64(n); float64(n) > 2*longest && term < 1e-17 {
			for _, b := range all {
				flush(b)
			}
			return all
		}
		clear(next)
		for i := range c.order {
			for j := range c.order {
				to := c.entry(next, i, j)
				for k := range c.order {
					from := c.entry(steps, i, k)
					floats.AddScaled(to, c.stay[k*c.order+j], from)
					floats.AddScaled(to[1:], c.arrive[k*c.order+j], from[:c.count-1])
				}
			}
		}
		steps, next = next, steps
	}
}

// until returns the blocks of any time t: it doubles those of a short time.
func (c *chain) until(t float64) blocks {
	doublings := 0
	for ; c.rate*t > shortest; t /= 2 {
		doublings++
	}
	b, spare := c.after([]float64{t})[0], c.zero()
	for range doublings {
		c.product(spare, b, b)
		b, spare = spare, b
	}
	return b
}
