package children

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// commonRows is the number of rows that two machines must have in common to be compared by them.
const commonRows = 20

// ownYardstick is this machine's yardstick in µs, 0 until it was read.
var ownYardstick struct {
	sync.Mutex
	took float64
}

// yardstick returns this machine's [profiler.Profile.Yardstick]; 0 if it cannot be read now.
func (m *Models) yardstick(ctx context.Context) float64 {
	if took := keepYardstick(0); took > 0 {
		return took
	}
	return m.Yardstick(ctx)
}

// Yardstick reads the [profiler.Profile.Yardstick] of this machine, which takes a moment, and
// returns the least of all readings in µs; 0 if there is none.
func (m *Models) Yardstick(ctx context.Context) float64 {
	out, err := m.Run(ctx, Foreground, "", "profile", "yardstick")
	if err != nil {
		return keepYardstick(0)
	}
	took, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		return keepYardstick(0)
	}
	return keepYardstick(took)
}

// keepYardstick takes in a reading in µs, 0 for none, and returns the least so far: nothing makes
// the product faster than the core is, and neighbours make it slower.
func keepYardstick(took float64) float64 {
	ownYardstick.Lock()
	defer ownYardstick.Unlock()
	if took > 0 && (ownYardstick.took == 0 || took < ownYardstick.took) {
		ownYardstick.took = took
	}
	return ownYardstick.took
}

// Pace implements [latency.Pace]: by the operators' rows that both machines have, otherwise by
// their yardsticks.
func (m *Models) Pace(ctx context.Context, of *profiler.Profile) (by, off float64) {
	if db, _, err := operators.Load(m.Database); err == nil {
		if ratio, spread, n := db.Ratio(of.Engine, of.Machine, m.Machine); n >= commonRows {
			return profiler.Paces(1, ratio), spread
		}
	}
	if own := m.yardstick(ctx); own > 0 && of.Yardstick > 0 {
		return profiler.Paces(of.Yardstick, own), latency.PacedByYardstick
	}
	return 1, latency.Unpaced
}
