package packing

import (
	"encoding/binary"
	"math"
	"slices"
)

// column is a variable of the master program: its cost and its entries.
type column struct {
	cost float64
	rows []int
	in   []float64
	// class and uses are those of its pattern; class is -1 for slack.
	class int
	uses  []Use
}

// master is a linear program in equations: minimise Σ cost·x with Σ column·x = right, x ≥ 0. The
// revised simplex method solves it. That suits fewer rows (functions and classes of nodes) than
// columns, which come one by one.
type master struct {
	rows    int
	right   []float64
	columns []column
	// basis has the column of each row, and x its value. where has the row of each column,
	// or -1.
	basis []int
	x     []float64
	where []int
	// inverse is the basis' inverse, and prices has the rows' duals.
	inverse inverse
	prices  []float64
	known   map[string]bool // the patterns that are columns already
	// turns counts the pivots since the inverse was last calculated again. still counts the
	// latest pivots that changed nothing.
	turns, still int
	// step is the inverse's product with the entering column, and costs has the costs of the
	// basis' columns.
	step, costs []float64
	work        *Work
}

// newMaster returns a program with one column per row in the basis, each with an entry of 1 in its
// row.
func newMaster(right []float64, first []column, work *Work) *master {
	m := &master{
		work: work, rows: len(right), right: right, known: map[string]bool{},
		basis: make([]int, len(right)), x: make([]float64, len(right)),
		inverse: identity(len(right)), prices: make([]float64, len(right)), step: make([]float64, len(right)), costs: make([]float64, len(right)),
	}
	for i, c := range first {
		m.columns, m.where = append(m.columns, c), append(m.where, i)
		m.basis[i], m.x[i] = i, right[i]
	}
	m.price()
	return m
}

// add adds a column outside the basis. It reports whether the column is new.
func (m *master) add(c column) bool {
	if c.class >= 0 {
		key := binary.AppendVarint(nil, int64(c.class))
		for _, u := range c.uses {
			key = binary.AppendVarint(binary.AppendVarint(key, int64(u.Item)), int64(u.Count))
		}
		if m.known[string(key)] {
			return false
		}
		m.known[string(key)] = true
	}
	m.columns, m.where = append(m.columns, c), append(m.where, -1)
	return true
}

// reduced is a column's reduced cost.
func (m *master) reduced(c *column) float64 {
	r := c.cost
	for i, row := range c.rows {
		r -= m.prices[row] * c.in[i]
	}
	return r
}

// tolerance is how far below 0 the reduced cost of a column with that cost must be to count.
func (m *master) tolerance(cost float64) float64 {
	largest := cost
	for _, p := range m.prices {
		largest = max(largest, math.Abs(p))
	}
	return 1e-9 * largest
}

// solve pivots until no column can improve the solution, or at most most times, or until the work
// is spent.
func (m *master) solve(most int) {
	for range most {
		if m.work.spend(4*len(m.columns) + m.inverse.steps()); m.work.spent() {
			return
		}
		enter, least := -1, 0.0
		tolerance := m.tolerance(0)
		for j := range m.columns {
			if m.where[j] >= 0 {
				continue
			}
			r := m.reduced(&m.columns[j])
			if r < -tolerance && r < least {
				enter, least = j, r
				if m.still > m.rows { // Bland's rule cannot cycle.
					break
				}
			}
		}
		if enter < 0 || !m.pivot(enter) {
			return
		}
	}
}

// pivot brings a column into the basis. It returns false if the column is unbounded. The problems
// of this package do not allow that, but rounding might.
func (m *master) pivot(enter int) bool {
	c := &m.columns[enter]
	m.inverse.times(c, m.step)
	leave, ratio := -1, math.Inf(1)
	for i, d := range m.step {
		if d <= 1e-9 {
			continue
		}
		r := max(m.x[i], 0) / d
		switch {
		case leave < 0 || r < ratio-1e-12*(1+ratio):
			leave, ratio = i, r
		case r <= ratio+1e-12*(1+ratio) && m.prefer(i, leave):
			leave, ratio = i, min(r, ratio)
		}
	}
	if leave < 0 {
		return false
	}
	if m.still++; ratio > 1e-12 {
		m.still = 0
	}
	m.where[m.basis[leave]], m.where[enter] = -1, leave
	m.basis[leave] = enter
	if m.turns++; (m.turns >= 100 || m.inverse.worn()) && m.invert() {
		return true
	}
	m.update(leave, ratio)
	return true
}

// prefer decides which of two rows that allow the same step leaves. If nothing has moved for long,
// it uses Bland's rule. Otherwise it takes the larger pivot, which rounds less.
func (m *master) prefer(i, than int) bool {
	if m.still > m.rows {
		return m.basis[i] < m.basis[than]
	}
	return m.step[i] > m.step[than]
}

// update applies a pivot to the inverse and the values.
func (m *master) update(leave int, ratio float64) {
	m.inverse.pivot(m.step, leave)
	for i, d := range m.step {
		if i != leave && d != 0 {
			m.x[i] = max(0, m.x[i]-d*ratio)
		}
	}
	m.x[leave] = ratio
	m.price()
}

// price computes the duals.
func (m *master) price() {
	for i, j := range m.basis {
		m.costs[i] = m.columns[j].cost
	}
	m.inverse.timesRow(m.costs, m.prices)
}

// invert calculates the inverse again from the basis' columns, so rounding errors do not add up. If
// that fails, it returns false and changes neither inverse nor values.
func (m *master) invert() bool {
	m.turns = 0
	columns := make([]*column, m.rows)
	for i, j := range m.basis {
		columns[i] = &m.columns[j]
	}
	inverse, at, ok := invert(columns)
	if !ok {
		return false
	}
	m.inverse = inverse
	for i, j := range slices.Clone(m.basis) {
		m.basis[at[i]], m.where[j] = j, at[i]
	}
	m.inverse.times(&column{rows: upTo(m.rows), in: m.right}, m.x)
	for i, v := range m.x {
		m.x[i] = max(0, v)
	}
	m.price()
	return true
}

// total is the value of the objective.
func (m *master) total() float64 {
	sum := 0.0
	for i, j := range m.basis {
		sum += m.columns[j].cost * m.x[i]
	}
	return sum
}
