package figure

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Table is a printed table: the first column has names, the others numbers.
type Table struct {
	// Title stands above, Notes below.
	Title  string
	Header []string
	Rows   [][]string
	Notes  []string
}

// row appends a row. It formats numbers with number.
func (t *Table) row(cells ...any) {
	var row []string
	for _, c := range cells {
		switch c := c.(type) {
		case float64:
			row = append(row, number(c))
		default:
			row = append(row, fmt.Sprint(c))
		}
	}
	t.Rows = append(t.Rows, row)
}

// number formats a number with three or four digits, a NaN as a dash.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "–"
	case a >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

// Print writes the table.
func (t Table) Print(w io.Writer) error {
	var b strings.Builder
	if t.Title != "" {
		fmt.Fprintln(&b, t.Title)
	}
	lines := append([][]string{t.Header}, t.Rows...)
	widths := make([]int, len(t.Header))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, line := range lines {
		var text strings.Builder
		for i, cell := range line {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if i == 0 {
				text.WriteString(cell + pad)
				continue
			}
			text.WriteString("  " + pad + cell)
		}
		fmt.Fprintln(&b, strings.TrimRight(text.String(), " "))
	}
	for _, n := range t.Notes {
		fmt.Fprintln(&b, n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// or returns v if ok, otherwise NaN.
func or(v float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return v
}

// beside returns a result's note on the published value, "" if there is none.
func beside(v float64, ok bool, where string) string {
	if !ok {
		return ""
	}
	return "paper " + number(v) + " (" + where + ")"
}
