package packing

import (
	"math"
	"slices"
)

// explicit is an inverse row by row.
type explicit struct {
	rows    int
	entries []float64
}

// newExplicit returns the inverse of the unit matrix.
func newExplicit(rows int) *explicit {
	e := &explicit{rows, make([]float64, rows*rows)}
	for i := range rows {
		e.entries[i*rows+i] = 1
	}
	return e
}

func (e *explicit) row(i int) []float64 { return e.entries[i*e.rows : (i+1)*e.rows] }

func (e *explicit) times(c *column, to []float64) {
	for i := range to {
		row, d := e.row(i), 0.0
		for k, at := range c.rows {
			d += row[at] * c.in[k]
		}
		to[i] = d
	}
}

func (e *explicit) timesRow(costs, to []float64) {
	clear(to)
	for i, cost := range costs {
		if cost == 0 {
			continue
		}
		for k, v := range e.row(i) {
			to[k] += cost * v
		}
	}
}

func (e *explicit) pivot(step []float64, leave int) {
	row := e.row(leave)
	for k := range row {
		row[k] /= step[leave]
	}
	for i, d := range step {
		if i == leave || d == 0 {
			continue
		}
		other := e.row(i)
		for k, v := range row {
			other[k] -= d * v
		}
	}
}

func (e *explicit) steps() int { return e.rows * e.rows }

func (e *explicit) worn() bool { return false }

func (e *explicit) clone() inverse { return &explicit{e.rows, slices.Clone(e.entries)} }

// invertExplicitly inverts the matrix of these columns by Gauss-Jordan elimination. It returns
// false if the matrix is singular.
func invertExplicitly(columns []*column) (*explicit, bool) {
	n := len(columns)
	work, e := make([]float64, n*n), newExplicit(n)
	for i, c := range columns {
		for k, row := range c.rows {
			work[row*n+i] = c.in[k]
		}
	}
	for c := range n {
		p := c
		for r := c + 1; r < n; r++ {
			if math.Abs(work[r*n+c]) > math.Abs(work[p*n+c]) {
				p = r
			}
		}
		if math.Abs(work[p*n+c]) < singular {
			return nil, false
		}
		swapRows(work, n, p, c)
		swapRows(e.entries, n, p, c)
		eliminate(work, e.entries, n, c)
	}
	return e, true
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
