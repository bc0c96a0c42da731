package packing

import (
	"encoding/binary"
	"math"
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
// revised simplex method with an explicit inverse of the basis solves it. That suits few rows
// (functions and classes of nodes) and columns that come one by one.
type master struct {
	rows    int
	right   []float64
	columns []column
	// basis has the column of each row, and x its value. where has the row of each column,
	// or -1.
	basis []int
	x     []float64
	where []int
	// inverse is the basis' inverse, row by row. prices has the rows' duals.
	inverse []float64
	prices  []float64
	known   map[string]bool // the patterns that are columns already
	// turns counts the pivots since the inverse was last calculated anew. still counts the
	// latest pivots that changed nothing.
	turns, still int
	step         []float64
}

// newMaster returns a program with one column per row in the basis, each with an entry of 1 in its
// row.
func newMaster(right []float64, first []column) *master {
	m := &master{
		rows: len(right), right: right, known: map[string]bool{},
		basis: make([]int, len(right)), x: make([]float64, len(right)),
		inverse: make([]float64, len(right)*len(right)), prices: make([]float64, len(right)), step: make([]float64, len(right)),
	}
	for i, c := range first {
		m.columns, m.where = append(m.columns, c), append(m.where, i)
		m.basis[i], m.x[i], m.inverse[i*m.rows+i] = i, right[i], 1
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

// solve pivots until no column can improve the solution, or at most most times.
func (m *master) solve(most int) {
	for range most {
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
	leave, ratio := -1, math.Inf(1)
	for i := range m.rows {
		d := 0.0
		for k, row := range c.rows {
			d += m.inverse[i*m.rows+row] * c.in[k]
		}
		if m.step[i] = d; d <= 1e-9 {
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
	if m.turns++; m.turns >= 100 && m.invert() {
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
	n := m.rows
	row := m.inverse[leave*n : leave*n+n]
	pivot := m.step[leave]
	for k := range row {
		row[k] /= pivot
	}
	for i := range n {
		d := m.step[i]
		if i == leave || d == 0 {
			continue
		}
		other := m.inverse[i*n : i*n+n]
		for k, v := range row {
			other[k] -= d * v
		}
		m.x[i] = max(0, m.x[i]-d*ratio)
	}
	m.x[leave] = ratio
	m.price()
}

// price computes the duals.
func (m *master) price() {
	clear(m.prices)
	for i, j := range m.basis {
		if cost := m.columns[j].cost; cost != 0 {
			for k, v := range m.inverse[i*m.rows : (i+1)*m.rows] {
				m.prices[k] += cost * v
			}
		}
	}
}

// invert calculates the inverse anew from the basis' columns by Gauss-Jordan elimination, so
// rounding errors do not add up. If that fails, it returns false and changes neither inverse nor
// values.
func (m *master) invert() bool {
	n := m.rows
	m.turns = 0
	work, inverse := make([]float64, n*n), make([]float64, n*n)
	for i, j := range m.basis {
		inverse[i*n+i] = 1
		for k, row := range m.columns[j].rows {
			work[row*n+i] = m.columns[j].in[k]
		}
	}
	for c := range n {
		p := c
		for r := c + 1; r < n; r++ {
			if math.Abs(work[r*n+c]) > math.Abs(work[p*n+c]) {
				p = r
			}
		}
		if math.Abs(work[p*n+c]) < 1e-11 {
			return false
		}
		swapRows(work, n, p, c)
		swapRows(inverse, n, p, c)
		eliminate(work, inverse, n, c)
	}
	m.inverse = inverse
	for i := range n {
		v := 0.0
		for k, b := range m.right {
			v += inverse[i*n+k] * b
		}
		m.x[i] = max(0, v)
	}
	m.price()
	return true
}

func swapRows(a []float64, n, p, q int) {
	if p == q {
		return
	}
	for k := range n {
		a[p*n+k], a[q*n+k] = a[q*n+k], a[p*n+k]
	}
}

// eliminate makes column c of work a unit column.
func eliminate(work, inverse []float64, n, c int) {
	scale := 1 / work[c*n+c]
	for k := range n {
		work[c*n+k] *= scale
		inverse[c*n+k] *= scale
	}
	for r := range n {
		f := work[r*n+c]
		if r == c || f == 0 {
			continue
		}
		for k := range n {
			work[r*n+k] -= f * work[c*n+k]
			inverse[r*n+k] -= f * inverse[c*n+k]
		}
	}
}

// total is the value of the objective.
func (m *master) total() float64 {
	sum := 0.0
	for i, j := range m.basis {
		sum += m.columns[j].cost * m.x[i]
	}
	return sum
}
