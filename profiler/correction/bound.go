package correction

import "math"

// risk is the probability that an end of a quantile's confidence interval is wrong.
const risk = 0.05

// ranks returns which of n sorted executions bound their q-quantile. Ranks count from the
// largest, which is 0. The true quantile is at most the high-th largest and at least the
// low-th largest, each with probability 1 − [risk].
//
// Of n executions, E ~ Binomial(n, 1−q) are above the quantile, and the j-th largest is at
// or above it if E > j. high is -1 if even the largest is too likely to be below: 58
// executions give no upper end of a 95th percentile, 59 do, as 0.95^59 < 0.05.
func ranks(n int, q float64) (high, low int) {
	// P(E = j+1) = P(E = j) · (n−j)/(j+1) · (1−q)/q
	here := math.Pow(q, float64(n))
	cumulated := here
	high = -1
	for j := 0; j < n; j++ {
		if cumulated <= risk {
			high = j
		}
		if cumulated >= 1-risk {
			return high, j
		}
		here *= float64(n-j) / float64(j+1) * (1 - q) / q
		cumulated += here
	}
	return high, n
}

// interval estimates the q-quantile of the counted ratios and its confidence interval,
// from at most limit executions. low is 0 and high infinite if there are too few.
func (c *counts) interval(q, limit float64) (low, point, high float64) {
	total := c.total()
	n := int(min(total, limit))
	low, point, high = 0, edge(c.top((1-q)*total)+1), math.Inf(1)
	if n < 1 {
		return low, point, high
	}
	each := total / float64(n)
	h, l := ranks(n, q)
	if h >= 0 {
		high = max(point, edge(c.top(float64(h+1)*each)+1))
	}
	if l < n {
		low = edge(c.top(float64(l+1) * each))
	}
	return low, point, high
}
