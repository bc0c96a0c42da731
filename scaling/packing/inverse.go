package packing

// inverse is the inverse of a basis: [explicit] or a [product].
type inverse interface {
	// times sets to to the product with a column, and timesRow to that of a row of costs.
	times(c *column, to []float64)
	timesRow(costs, to []float64)
	// pivot changes it to the inverse of the basis with another column in a row. step is the
	// product with that column.
	pivot(step []float64, leave int)
	// steps is about how many steps a pivot takes.
	steps() int
	// worn reports whether it is slow and should be calculated again.
	worn() bool
	clone() inverse
}

// explicitRows is the number of rows up to which an inverse is explicit. An explicit inverse has
// hardly any zeros after some pivots. With a thousand rows, one as a product takes a hundredth of
// its time. Tests change it.
var explicitRows = 128

// singular is the entry below which there is no pivot.
const singular = 1e-11

// identity returns the inverse of the unit matrix.
func identity(rows int) inverse {
	if rows <= explicitRows {
		return newExplicit(rows)
	}
	return &product{every: upTo(rows)}
}

// invert inverts the matrix of these columns. at has the row of each column in the basis. It
// returns false if the matrix is singular.
func invert(columns []*column) (of inverse, at []int, ok bool) {
	if len(columns) > explicitRows {
		return invertToProduct(columns)
	}
	of, ok = invertExplicitly(columns)
	return of, upTo(len(columns)), ok
}

// upTo returns the numbers below n.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
