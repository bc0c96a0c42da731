package command

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
)

const (
	// commonRows is the number of rows that two machines must have in common to be compared by
	// them.
	commonRows = 20
	// yardstickError is the relative error that is expected of times that were converted by the
	// yardstick, and unpaced that of times that were not converted. Both are assumptions: the
	// yardstick is one matrix product, and operators that wait for memory follow it less.
	yardstickError, unpaced = 0.2, 0.3
)

// ownYardstick is this machine's yardstick in µs, 0 until it was read.
var ownYardstick struct {
	sync.Mutex
	took float64
}

// yardstick returns this machine's [profiler.Profile.Yardstick]; 0 if it cannot be read now.
func (m *childModels) yardstick(ctx context.Context) float64 {
	ownYardstick.Lock()
	defer ownYardstick.Unlock()
	if ownYardstick.took > 0 {
		return ownYardstick.took
	}
	out, err := m.run(ctx, foreground, nil, "profile", "yardstick")
	if err != nil {
		return 0
	}
	took, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	if err != nil {
		return 0
	}
	ownYardstick.took = took
	return took
}

// pace implements [latency.Pace]: by the operators' rows that both machines have, otherwise by
// their yardsticks.
func (m *childModels) pace(ctx context.Context, of *profiler.Profile) (by, off float64) {
	if db, _, err := operators.Load(m.database); err == nil {
		if ratio, spread, n := db.Ratio(of.Engine, of.Machine, report.Machine()); n >= commonRows {
			return profiler.Paces(1, ratio), spread
		}
	}
	if own := m.yardstick(ctx); own > 0 && of.Yardstick > 0 {
		return profiler.Paces(of.Yardstick, own), yardstickError
	}
	return 1, unpaced
}

// Yardstick returns the [profiler.Profile.Yardstick] of this machine; 0 if it cannot be read now.
func (f *ProviderFlags) Yardstick(ctx context.Context) float64 { return f.childModels().yardstick(ctx) }
