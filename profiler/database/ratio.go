package database

import (
	"math"
	"slices"

	"github.com/faas-infer/faas-infer/profiler"
)

// Ratio compares two machines by the rows that both have, of the same operator, batch, shares and
// temperature: ratio is the median of the times on to over those on from, and spread the relative
// error with which it predicts a single row: half of them are within it. n is their number; with
// 0 the ratio is 0. Rows on a GPU and noisy ones do not count.
func (d *Database) Ratio(engine, from, to string) (ratio, spread float64, n int) {
	var all []float64
	for a := range d.Rows(engine, from) {
		if a.GPU > 0 || a.Noisy {
			continue
		}
		rows := d.Lookup(engine, to, a.Operator)
		i, found := slices.BinarySearchFunc(rows, a.point(), func(r Row, p point) int { return r.point().order(p) })
		if found && !rows[i].Noisy {
			all = append(all, rows[i].Median/a.Median)
		}
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	ratio = profiler.Quantile(all, 0.5)
	off := make([]float64, len(all))
	for i, r := range all {
		off[i] = math.Abs(ratio/r - 1)
	}
	return ratio, profiler.Quantile(off, 0.5), len(all)
}
