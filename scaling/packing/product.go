package packing

import (
	"cmp"
	"math"
	"slices"
)

// product is an inverse as a product of etas (product form of the inverse). A basis has few
// entries in each column, and so have most etas.
type product struct {
	// every has all rows.
	every []int
	etas  []eta
	// entries is how many the etas have. fill is how many of them pivots have added.
	entries, fill int
}

// maxFill bounds the entries that pivots add before the inverse is calculated again.
const maxFill = 1 << 15

// eta is one pivot of a column: its entry in the pivot's row, and its other entries.
type eta struct {
	row   int
	pivot float64
	rows  []int
	in    []float64
}

// newEta returns the eta of a pivot of a column in a row. among has the rows in which the column
// may have entries.
func newEta(step []float64, among []int, row int) eta {
	e, n := eta{row: row, pivot: step[row]}, 0
	for _, i := range among {
		if step[i] != 0 {
			n++
		}
	}
	e.rows, e.in = make([]int, 0, n), make([]float64, 0, n)
	for _, i := range among {
		if step[i] != 0 && i != row {
			e.rows, e.in = append(e.rows, i), append(e.in, step[i])
		}
	}
	return e
}

func (p *product) times(c *column, to []float64) {
	clear(to)
	for k, row := range c.rows {
		to[row] = c.in[k]
	}
	p.apply(to)
}

// apply multiplies the inverse by a column in place.
func (p *product) apply(v []float64) {
	for n := range p.etas {
		e := &p.etas[n]
		if v[e.row] == 0 {
			continue
		}
		x := v[e.row] / e.pivot
		v[e.row] = x
		for k, i := range e.rows {
			v[i] -= e.in[k] * x
		}
	}
}

func (p *product) timesRow(costs, to []float64) {
	copy(to, costs)
	for n := len(p.etas) - 1; n >= 0; n-- {
		e := &p.etas[n]
		x := to[e.row]
		for k, i := range e.rows {
			x -= e.in[k] * to[i]
		}
		to[e.row] = x / e.pivot
	}
}

func (p *product) pivot(step []float64, leave int) {
	e := newEta(step, p.every, leave)
	p.etas = append(p.etas, e)
	p.entries, p.fill = p.entries+len(e.rows)+1, p.fill+len(e.rows)+1
}

// steps includes a part of those after which it is calculated again.
func (p *product) steps() int { return 2*p.entries + len(p.every)*len(p.every)/64 }

func (p *product) worn() bool { return p.fill > maxFill }

func (p *product) clone() inverse { return &product{p.every, slices.Clone(p.etas), p.entries, p.fill} }

// invertToProduct inverts the matrix of these columns, and returns the row of each column's pivot.
// The columns with the fewest entries come first. Of a column's entries, the pivot is the one in
// the row with the fewest, unless it is small. So the etas get few entries more than the columns
// have. It returns false if the matrix is singular.
func invertToProduct(columns []*column) (p *product, at []int, ok bool) {
	rows := len(columns)
	counts, order := make([]int, rows), upTo(rows)
	for _, c := range columns {
		for _, i := range c.rows {
			counts[i]++
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(columns[a].rows), len(columns[b].rows)) })
	p, at = &product{every: upTo(rows)}, make([]int, rows)
	step, among, taken := make([]float64, rows), newRowSet(rows), make([]bool, rows)
	for _, j := range order {
		for k, i := range columns[j].rows {
			step[i] = columns[j].in[k]
			among.add(i)
		}
		p.applyTo(step, among)
		row := pivotRow(step, among.rows, taken, counts)
		if row < 0 {
			return nil, nil, false
		}
		taken[row], at[j] = true, row
		if e := newEta(step, among.rows, row); e.pivot != 1 || len(e.rows) > 0 {
			p.etas = append(p.etas, e)
			p.entries += len(e.rows) + 1
		}
		for _, i := range among.rows {
			step[i] = 0
		}
		among.clear()
	}
	return p, at, true
}

// applyTo is apply for a column with few entries, in the rows of among. It adds the rows of new
// entries.
func (p *product) applyTo(v []float64, among *rowSet) {
	for n := range p.etas {
		e := &p.etas[n]
		if v[e.row] == 0 {
			continue
		}
		x := v[e.row] / e.pivot
		v[e.row] = x
		for k, i := range e.rows {
			v[i] -= e.in[k] * x
			among.add(i)
		}
	}
}

// rowSet is a set of rows, in the order in which they came.
type rowSet struct {
	rows []int
	has  []bool
}

func newRowSet(rows int) *rowSet { return &rowSet{has: make([]bool, rows)} }

func (s *rowSet) add(row int) {
	if !s.has[row] {
		s.has[row] = true
		s.rows = append(s.rows, row)
	}
}

func (s *rowSet) clear() {
	for _, i := range s.rows {
		s.has[i] = false
	}
	s.rows = s.rows[:0]
}

// pivotRow returns the row among these to pivot a column in, or -1 if it has no entry there. taken
// has the rows of earlier pivots, and counts how many entries each row has.
func pivotRow(step []float64, among []int, taken []bool, counts []int) int {
	const stable = 0.1 // the smallest part of the largest entry that may be a pivot
	largest, best := 0.0, -1
	for _, i := range among {
		if !taken[i] {
			largest = max(largest, math.Abs(step[i]))
		}
	}
	if largest < singular {
		return -1
	}
	for _, i := range among {
		if !taken[i] && math.Abs(step[i]) >= stable*largest && (best < 0 || counts[i] < counts[best]) {
			best = i
		}
	}
	return best
}
