package control

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling"
)

// Requests of the queue count with as many rows as others: times are of rows.
func TestTheBacklogCountsRows(t *testing.T) {
	now := time.Now()
	load := func(rows float64) (f scaling.Function) {
		c := &Controller{options: Options{Backlog: func(string) (int, time.Time) { return 600, now }}}
		addBacklog(c, &function{Function: &provider.Function{}}, &f, now, dispatch.Stats{Patient: 5, PatientWaiting: 3}, rows)
		return f
	}
	one, several := load(1), load(2.5)
	if one.Rate <= 0 || math.Abs(several.Rate-2.5*one.Rate) > 1e-9 || one.Patient != 3 || several.Patient != 8 {
		t.Errorf("%v/s and %d waiting of one row, %v/s and %d of two and a half", one.Rate, one.Patient, several.Rate, several.Patient)
	}
}
