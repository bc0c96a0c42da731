package infaas

import (
	"cmp"
	"math"
	"slices"
)

// combination chooses one column for each application within the limits.
type combination struct {
	*priced
	columns [][]column
	// order has the applications, those with the fewest columns first. chosen has the column
	// of each application.
	order, chosen []int
	left          []float64
	// least[n] is what the applications from the n-th of the order on need at least.
	least [][]float64
	work  int
}

// combineWork is the maximum number of steps of the search.
const combineWork = 2_000_000

// combine improves the best plan by exchanging columns, and then searches all combinations that
// may be better. A column with a reduced cost above the gap between the best plan and the bound
// is in no better plan. It reports whether the best plan is proven to be the best.
func (s *priced) combine() bool {
	c := &combination{priced: s, chosen: make([]int, len(s.Applications))}
	complete := c.prepare()
	if s.counts != nil {
		c.start()
		gap := s.gap()
		for range exchangeRounds {
			if !c.exchange() {
				break
			}
		}
		c.keep()
		if s.gap() < gap/2 {
			complete = c.prepare()
		}
	}
	if slices.ContainsFunc(c.columns, func(cols []column) bool { return len(cols) == 0 }) {
		return complete // No column is better than what the best plan has.
	}
	copy(c.left, s.Limits)
	c.search(0, 0, 0)
	return complete && c.work <= combineWork
}

// gap is the distance of the best plan from the bound.
func (s *priced) gap() float64 { return s.value - s.bound }

// prepare lists the columns for the present gap. It reports whether all are listed.
func (c *combination) prepare() bool {
	n := len(c.Applications)
	c.columns, c.left = make([][]column, n), slices.Clone(c.Limits)
	c.order = make([]int, n)
	complete := true
	for a := range n {
		cols, all := c.priced.columns(a, c.gap())
		c.columns[a], c.order[a] = cols, a
		complete = complete && all
	}
	slices.SortStableFunc(c.order, func(a, b int) int { return cmp.Compare(len(c.columns[a]), len(c.columns[b])) })
	c.least = make([][]float64, n+1)
	c.least[n] = make([]float64, len(c.Limits))
	for i := n - 1; i >= 0; i-- {
		c.least[i] = slices.Clone(c.least[i+1])
		for k := range c.Limits {
			smallest := math.Inf(1)
			for _, col := range c.columns[c.order[i]] {
				smallest = min(smallest, col.needs[k])
			}
			c.least[i][k] += smallest
		}
	}
	return complete
}

// start chooses the best plan's columns. If that has columns that are not listed, it adds them.
func (c *combination) start() {
	copy(c.left, c.Limits)
	for a := range c.Applications {
		at := slices.IndexFunc(c.columns[a], func(col column) bool { return slices.Equal(col.counts, c.counts[a]) })
		if at < 0 {
			col := column{counts: c.counts[a], reduced: math.Inf(1), cost: c.price(a, c.counts[a]), needs: make([]float64, len(c.Limits))}
			uses(&c.Applications[a], col.counts, col.needs)
			at = len(c.columns[a])
			c.columns[a] = append(c.columns[a], col)
		}
		c.chosen[a] = at
		for k, need := range c.columns[a][at].needs {
			c.left[k] -= need
		}
	}
}

// near is the number of columns of an application that exchanges consider, and exchangeRounds
// the maximum number of rounds of exchanges.
const near, exchangeRounds = 24, 30

// exchange replaces one column, or two of different applications, wherever the cost falls
// and the limits hold. It reports whether anything changed.
func (c *combination) exchange() bool {
	changed := false
	for a := range c.columns {
		for q := range min(near, len(c.columns[a])) {
			gain := c.columns[a][c.chosen[a]].cost - c.columns[a][q].cost
			if gain <= 0 {
				continue
			}
			if c.room(a, q, -1, 0) {
				c.choose(a, q)
				changed = true
			} else if b, r := c.partner(a, q, gain); b >= 0 {
				c.choose(a, q)
				c.choose(b, r)
				changed = true
			}
		}
	}
	return changed
}

// partner finds another application's column that makes room for column q of application a and
// costs less more than the gain. It returns -1 if there is none.
func (c *combination) partner(a, q int, gain float64) (b, r int) {
	best, b, r := gain*(1-tolerance), -1, 0
	for other := range c.columns {
		if other == a {
			continue
		}
		now := c.columns[other][c.chosen[other]].cost
		for x := range min(near, len(c.columns[other])) {
			if more := c.columns[other][x].cost - now; more < best && c.room(a, q, other, x) {
				best, b, r = more, other, x
			}
		}
	}
	return b, r
}

// room reports whether column q of application a, and column r of b unless b is -1, fit in
// place of the chosen ones.
func (c *combination) room(a, q, b, r int) bool {
	for k, left := range c.left {
		left += c.columns[a][c.chosen[a]].needs[k] - c.columns[a][q].needs[k]
		if b >= 0 {
			left += c.columns[b][c.chosen[b]].needs[k] - c.columns[b][r].needs[k]
		}
		if left < -tolerance*c.Limits[k] {
			return false
		}
	}
	return true
}

func (c *combination) choose(a, q int) {
	for k := range c.left {
		c.left[k] += c.columns[a][c.chosen[a]].needs[k] - c.columns[a][q].needs[k]
	}
	c.chosen[a] = q
}

// keep offers the chosen columns as a plan.
func (c *combination) keep() {
	counts := make([][]int, len(c.Applications))
	for a := range counts {
		counts[a] = c.columns[a][c.chosen[a]].counts
	}
	c.offer(counts)
}

// search tries the columns of the applications from the n-th of the order on. reduced and cost
// are the sums of the reduced and of the true costs so far.
func (c *combination) search(n int, reduced, cost float64) {
	if n == len(c.order) {
		if cost < c.value {
			c.keep()
		}
		return
	}
	a := c.order[n]
	for q := range c.columns[a] {
		col := &c.columns[a][q]
		if c.work++; c.work > combineWork || reduced+col.reduced >= c.gap() {
			return
		}
		fits := true
		for k := range c.left {
			if c.left[k]-col.needs[k]-c.least[n+1][k] < -tolerance*c.Limits[k] {
				fits = false
			}
		}
		if !fits {
			continue
		}
		for k, need := range col.needs {
			c.left[k] -= need
		}
		c.chosen[a] = q
		c.search(n+1, reduced+col.reduced, cost+col.cost)
		for k, need := range col.needs {
			c.left[k] += need
		}
	}
}
