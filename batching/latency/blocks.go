package latency

import (
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/faas-infer/faas-infer/batching/arrival"
)

// blocks are the matrices N_0, N_1, … of some time: N_l has the probabilities that l
// requests come in it, by the phase before and after. They are the first row of
// e^{Qt} of Eq. 11, which has N_l everywhere where l more requests are there. They lie
// as chain.entry takes them: for each two phases, all l one after the other, so that
// products are sums of long vectors.
type blocks []float64

// tiny is a probability that counts as 0: sums near 1 have no such digits, and half of
// the work is with such where phases differ much.
const tiny = 1e-20

// chain does the arithmetic of blocks: count of them, of order×order each.
type chain struct {
	order, count int
	// rate is that of uniformisation: the fastest phase's. stay and arrive are the
	// matrices I + D0/rate and D1/rate, row by row.
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

// entry is, for l = 0, 1, …, the probability of l requests and phase j, from phase i.
func (c *chain) entry(b blocks, i, j int) []float64 {
	at := (i*c.order + j) * c.count
	return b[at : at+c.count]
}

// requests is the probability of l requests, from the phase given.
func (c *chain) requests(phase []float64, b blocks, l int) float64 {
	sum := 0.0
	for i, p := range phase {
		for j := range c.order {
			sum += p * c.entry(b, i, j)[l]
		}
	}
	return sum
}

// identity are the blocks of no time.
func (c *chain) identity() blocks {
	b := c.zero()
	for i := range c.order {
		c.entry(b, i, i)[0] = 1
	}
	return b
}

// product sets dst to the blocks of the times of a and b together:
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

// flush makes what is tiny 0.
func flush(b blocks) {
	for i, v := range b {
		if v < tiny {
			b[i] = 0
		}
	}
}

// after are the blocks of each of the times, which are short: by uniformisation,
// N_l(t) = Σ_n e^{−qt}(qt)ⁿ/n!·K_l⁽ⁿ⁾, where K_l⁽ⁿ⁾ has the probabilities of l
// requests in n steps: K_l⁽ⁿ⁺¹⁾ = K_l⁽ⁿ⁾·(I + D0/q) + K_{l−1}⁽ⁿ⁾·D1/q.
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
		// The terms left sum to less than twice the next once they halve.
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

// until are the blocks of any time: of a short one, doubled.
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
