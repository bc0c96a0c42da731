package database

import (
	"math"
	"testing"
	"time"
)

// Two machines are compared by the rows that both have.
func TestRatio(t *testing.T) {
	var d Database
	row := func(machine, operator string, batch int, us float64) Row {
		return Row{Operator: operator, Family: "f", Batch: batch, Millicores: 1000, Median: us, P95: us, Runs: 9,
			Engine: "e", Machine: machine, MeasuredAt: time.Unix(1e9, 0)}
	}
	for i, by := range []float64{1.4, 1.5, 1.5, 1.6, 1.5} {
		d.Add(row("A", "op", 1<<i, 100))
		d.Add(row("B", "op", 1<<i, 100*by))
	}
	d.Add(row("A", "only here", 1, 7))
	noisy := row("B", "only here", 1, 700)
	noisy.Noisy = true
	d.Add(noisy)
	if ratio, spread, n := d.Ratio("e", "A", "B"); ratio != 1.5 || spread != 0 || n != 5 {
		t.Errorf("%v ± %v of %d", ratio, spread, n)
	}
	d.Add(row("A", "other", 1, 100))
	d.Add(row("B", "other", 1, 300))
	d.Add(row("A", "other", 2, 100))
	d.Add(row("B", "other", 2, 120))
	if ratio, spread, n := d.Ratio("e", "B", "A"); math.Abs(ratio-1/1.5) > 1e-9 || !(spread > 0.05 && spread < 0.15) || n != 7 {
		t.Errorf("back: %v ± %v of %d", ratio, spread, n)
	}
	if _, _, n := d.Ratio("e", "A", "C"); n != 0 {
		t.Errorf("%d rows of an unknown machine", n)
	}
}
