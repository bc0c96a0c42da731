package latency

import (
	"math"

	"github.com/faas-infer/faas-infer/batching/arrival"
)

// blocks are m×m matrices N_0, N_1, …, one after the other, row by row: N_l has the
// probabilities that l requests come in some time, by the phase before and after.
// They are the first row of e^{Qt} of Eq. 11, which has N_l everywhere where l more
// requests are there.
type blocks []float64

// tiny is what counts as 0, so that products stay clear of numbers that processors
// are slow with.
const tiny = 1e-140

// chain does the arithmetic of blocks: count of them, of order×order each.
type chain struct {
	order, count int
	size         int // of one block
	// rate is that of uniformisation: the fastest phase's. stay and arrive are the
	// matrices I + D0/rate and D1/rate.
	rate         float64
	stay, arrive []float64
}

func newChain(m arrival.MAP, count int) *chain {
	n := m.Order()
	c := &chain{order: n, count: count, size: n * n, stay: make([]float64, n*n), arrive: make([]float64, n*n)}
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

func (c *chain) zero() blocks { return make(blocks, c.count*c.size) }

// identity are the blocks of no time.
func (c *chain) identity() blocks {
	b := c.zero()
	for i := range c.order {
		b[i*c.order+i] = 1
	}
	return b
}

// product sets dst to the blocks of the times of a and b together:
// N_l(t + u) = Σ N_i(t)·N_{l−i}(u). dst must not be a or b.
func (c *chain) product(dst, a, b blocks) {
	if c.order == 2 {
		c.product2(dst, a, b)
		return
	}
	clear(dst)
	for i := range c.count {
		left := a[i*c.size : (i+1)*c.size]
		if negligible(left) {
			continue
		}
		for j := range c.count - i {
			c.accumulate(dst[(i+j)*c.size:(i+j+1)*c.size], left, b[j*c.size:(j+1)*c.size])
		}
	}
	for i, v := range dst {
		dst[i] = flush(v)
	}
}

// product2 is product for order 2, which fits of arrivals have: it is most of the time
// that a distribution takes.
func (c *chain) product2(dst, a, b blocks) {
	for l := range c.count {
		var s0, s1, s2, s3 float64
		right := b[:4*(l+1)]
		for left := a[:4*(l+1)]; len(left) >= 4 && len(right) >= 4; left = left[4:] {
			x, y := left[:4:4], right[len(right)-4:]
			right = right[:len(right)-4]
			s0 += x[0]*y[0] + x[1]*y[2]
			s1 += x[0]*y[1] + x[1]*y[3]
			s2 += x[2]*y[0] + x[3]*y[2]
			s3 += x[2]*y[1] + x[3]*y[3]
		}
		to := dst[4*l : 4*l+4]
		to[0], to[1], to[2], to[3] = flush(s0), flush(s1), flush(s2), flush(s3)
	}
}

// flush is v, or 0 where it is tiny.
func flush(v float64) float64 {
	if v < tiny {
		return 0
	}
	return v
}

// negligible reports whether all of a block is 0.
func negligible(block []float64) bool {
	for _, v := range block {
		if v != 0 {
			return false
		}
	}
	return true
}

// accumulate adds the product of two matrices to dst; orders 1 and 2 are written out.
func (c *chain) accumulate(dst, a, b []float64) {
	switch n := c.order; n {
	case 1:
		dst[0] += a[0] * b[0]
	case 2:
		dst, a, b = dst[:4], a[:4], b[:4]
		dst[0] += a[0]*b[0] + a[1]*b[2]
		dst[1] += a[0]*b[1] + a[1]*b[3]
		dst[2] += a[2]*b[0] + a[3]*b[2]
		dst[3] += a[2]*b[1] + a[3]*b[3]
	default:
		for i := range n {
			to := dst[i*n : (i+1)*n]
			for k, v := range a[i*n : (i+1)*n] {
				if v == 0 {
					continue
				}
				for j, w := range b[k*n : (k+1)*n] {
					to[j] += v * w
				}
			}
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
	steps, next := c.identity(), c.zero()
	for n := 1; ; n++ {
		for i, b := range all {
			for k, v := range steps[:min(n, c.count)*c.size] {
				b[k] += weights[i] * v
			}
			weights[i] *= c.rate * times[i] / float64(n)
		}
		// The terms left sum to less than twice the next once they halve.
		if term := math.Exp(-longest) * math.Pow(longest, float64(n)) / math.Gamma(float64(n)+1); float64(n) > 2*longest && term < 1e-17 {
			return all
		}
		clear(next)
		for l := range min(n+1, c.count) {
			to := next[l*c.size : (l+1)*c.size]
			c.accumulate(to, steps[l*c.size:(l+1)*c.size], c.stay)
			if l > 0 {
				c.accumulate(to, steps[(l-1)*c.size:l*c.size], c.arrive)
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
