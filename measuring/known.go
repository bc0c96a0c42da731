package measuring

import (
	"time"

	"github.com/faas-infer/faas-infer/profiler/database"
)

// The yardsticks' times on the quiet machine are kept among the rows, so that
// what is measured in another session is brought to the same pace.
const (
	yardstickFamily = "Yardstick"
	computeKey      = "Yardstick compute"
	memoryKey       = "Yardstick memory"
)

// KnownPace is the yardsticks' base that a database has for an engine on a
// machine, zero if it has none.
func KnownPace(db *database.Database, engine, machine string) Pace {
	of := func(key string) float64 {
		rows := db.Lookup(engine, machine, key)
		if len(rows) == 0 {
			return 0
		}
		return rows[0].Median
	}
	return Pace{Compute: of(computeKey), Memory: of(memoryKey)}
}

// KnownSince is when the base was found that a database has for an engine on a
// machine: rows from before it were measured on a machine that was not quiet.
func KnownSince(db *database.Database, engine, machine string) time.Time {
	rows := db.Lookup(engine, machine, computeKey)
	if len(rows) == 0 {
		return time.Time{}
	}
	return rows[0].MeasuredAt
}

// KeepPace puts the yardsticks' base into a database if it was found by this
// measurer.
func (m *Measurer) KeepPace(put func(database.Row) error) error {
	base, since := m.sampler.Yardstick()
	if since.IsZero() {
		return nil
	}
	for key, t := range map[string]float64{computeKey: base.Compute, memoryKey: base.Memory} {
		if err := put(database.Row{
			Operator: key, Family: yardstickFamily, Batch: 1, Millicores: 1000, Median: t, P95: t, CPU: t, Runs: calibrations,
			Engine: m.engine, Machine: m.machine, MeasuredAt: since.UTC(),
		}); err != nil {
			return err
		}
	}
	return nil
}
