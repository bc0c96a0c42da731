package measuring

import (
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
)

// The yardstick's time on the quiet machine is stored as a row. So another session's
// times can be converted to the same pace.
const (
	yardstickFamily = "Yardstick"
	computeKey      = "Yardstick compute"
	againKey        = "Yardstick sweep again and again"
	sweepKey        = "Yardstick sweep of %d MiB"
)

// KnownPace is the yardstick's base in µs in a database, for an engine on a machine; 0 if
// it has none.
func KnownPace(db *database.Database, engine, machine string) float64 {
	rows := db.Lookup(engine, machine, computeKey)
	if len(rows) == 0 {
		return 0
	}
	return rows[0].Median
}

// KnownSince is the time when the base in a database was found, for an engine on a
// machine. Older rows were measured on a machine that was not quiet.
func KnownSince(db *database.Database, engine, machine string) time.Time {
	rows := db.Lookup(engine, machine, computeKey)
	if len(rows) == 0 {
		return time.Time{}
	}
	return rows[0].MeasuredAt
}

// KeepPace stores the yardstick's base if this measurer found it.
func (m *Measurer) KeepPace(put func(database.Row) error) error {
	base, since := m.sampler.Yardstick()
	if since.IsZero() {
		return nil
	}
	return put(database.Row{
		Operator: computeKey, Family: yardstickFamily, Batch: 1, Millicores: 1000, Median: base, P95: base, CPU: base, Runs: calibrations,
		Engine: m.engine, Machine: m.machine, MeasuredAt: since.UTC(),
	})
}

// QuotaShare is the quota in millicores under which the effect of a quota on the caches
// is measured.
const QuotaShare = 500

// KnownRefill is the result of [Sampler.Sweep] on a whole core and under a quota. ok is
// false if a database does not have both.
func KnownRefill(db *database.Database, engine, machine string) (refill cop.Refill, ok bool) {
	var alone, mean float64
	for _, r := range db.Lookup(engine, machine, againKey) {
		switch r.Millicores {
		case 1000:
			alone = r.Median
		case QuotaShare:
			mean = r.Median
		}
	}
	if alone == 0 || mean == 0 {
		return 0, false
	}
	return cop.NewRefill(alone, mean, ReadCaches().sample(), QuotaShare), true
}

// SweepRow is the row of a sample of [Sampler.Sweep] on a CPU share.
func (m *Measurer) SweepRow(t Sample, millicores int) database.Row {
	return database.Row{
		Operator: againKey, Family: yardstickFamily, Batch: 1, Millicores: millicores,
		Median: t.Typical, P95: t.P95, CPU: t.CPU, Spread: t.Spread, Runs: max(1, t.Runs), Noisy: t.Noisy,
		Engine: m.engine, Machine: m.machine, MeasuredAt: time.Now().UTC(),
	}
}

// KnownReuse is the curve of [Measurer.MeasureReuse] in a database, empty if it has none.
func KnownReuse(db *database.Database, engine, machine string) cop.Reuse {
	var curve cop.Reuse
	for size := smallestSweep; size <= largestSweep; size *= 2 {
		rows := db.Lookup(engine, machine, fmt.Sprintf(sweepKey, size>>20))
		if len(rows) > 0 {
			curve = append(curve, cop.ReusePoint{Working: size, Time: rows[0].Median / float64(size>>20)})
		}
	}
	return curve
}
