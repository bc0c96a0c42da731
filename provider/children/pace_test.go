package children

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// Machines are compared by operators that both have measured, otherwise by the yardstick.
func TestPace(t *testing.T) {
	m := &Models{Config: Config{Database: filepath.Join(t.TempDir(), operators.FileName), Machine: "this machine"}}
	ownYardstick.Lock()
	before := ownYardstick.took
	ownYardstick.took = 60
	ownYardstick.Unlock()
	t.Cleanup(func() {
		ownYardstick.Lock()
		ownYardstick.took = before
		ownYardstick.Unlock()
	})
	of := &profiler.Profile{Engine: "e", Machine: "CPU A", Yardstick: 40}
	if by, off := m.Pace(t.Context(), of); math.Abs(by/1.5-1) > 0.03 || off != latency.PacedByYardstick {
		t.Errorf("by the yardstick: %v ± %v", by, off)
	}
	if slow, fast := keepYardstick(90), keepYardstick(50); slow != 60 || fast != 50 {
		t.Errorf("the least of 60, 90 and 50: %v, then %v", slow, fast)
	}
	of.Yardstick = 0
	if by, off := m.Pace(t.Context(), of); by != 1 || off != latency.Unpaced {
		t.Errorf("unknown: %v ± %v", by, off)
	}
	f, err := operators.Open(m.Database, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range commonRows {
		for machine, us := range map[string]float64{"CPU A": 100, m.Machine: 200 + float64(i%3)*20} {
			err := f.Append(database.Row{Operator: fmt.Sprint(i), Family: "f", Batch: 1, Millicores: 1000, Median: us, P95: us, Runs: 9,
				Engine: "e", Machine: machine, MeasuredAt: time.Unix(1e9, 0)})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if by, off := m.Pace(t.Context(), of); math.Abs(by/2.2-1) > 0.03 || off <= 0 || off > 0.11 {
		t.Errorf("by operators: %v ± %v", by, off)
	}
}
