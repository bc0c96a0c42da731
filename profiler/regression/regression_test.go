package regression

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// made is an operator with given features: so much once, so much per request.
type made struct {
	key, family string
	flops, in   int64 // per request
	weights     int64
}

func (m made) Key() string    { return m.key }
func (m made) Family() string { return m.family }
func (m made) Features(b int) operator.Features {
	return operator.Features{FLOPs: m.flops * int64(b), InBytes: m.in * int64(b), OutBytes: m.in * int64(b), WeightBytes: m.weights}
}

// row is a measurement of an operator.
func row(m made, batch, millicores int, cold bool, us float64) database.Row {
	return database.Row{
		Operator: m.key, Family: m.family, Features: m.Features(batch), Batch: batch, Millicores: millicores, Cold: cold,
		Median: us, P95: us * 1.2, CPU: us * math.Ceil(float64(millicores)/1000), Runs: 30,
		Engine: "engine", Machine: "machine", MeasuredAt: time.Unix(1e9, 0),
	}
}

func model(rows ...database.Row) *Model { return New(slices.Values(rows), 0) }

func wantTime(t *testing.T, m *Model, op asked, batch, millicores int, cold bool, us float64, source cop.Source) {
	t.Helper()
	e, ok := m.time(op, batch, millicores, cold)
	if !ok || math.Abs(e.Median-us) > 1e-6*us || e.Source != source {
		t.Errorf("b = %d at %dm, cold %v: %+v, %v; want %v µs %v", batch, millicores, cold, e, ok, us, source)
	}
}

var conv = made{"conv 3x3", "Conv/general", 1e6, 1e4, 36864}

func TestInterpolation(t *testing.T) {
	m := model(row(conv, 1, 1000, false, 100), row(conv, 4, 1000, false, 250), row(conv, 16, 1000, false, 1090))
	for batch, us := range map[int]float64{1: 100, 4: 250, 16: 1090} {
		wantTime(t, m, conv, batch, 1000, false, us, cop.Measured)
	}
	wantTime(t, m, conv, 2, 1000, false, 150, cop.Interpolated)
	wantTime(t, m, conv, 10, 1000, false, 670, cop.Interpolated)
	// Beyond the last batch it is on the line through the last two: 1090 + 16·70
	// would be 2210, but 32 requests take at most twice as long as 16.
	wantTime(t, m, conv, 32, 1000, false, 2180, cop.Interpolated)
	if e, _ := m.time(conv, 64, 1000, false); math.Abs(e.Margin-0.3) > 1e-9 {
		t.Errorf("two doublings beyond: margin %v, want 0.3", e.Margin)
	}
	// There are no rows on two threads or from memory.
	if e, ok := m.time(conv, 1, 2000, false); ok {
		t.Errorf("two threads: %+v", e)
	}
	wantTime(t, m, conv, 4, 1000, true, 250, cop.Measured)
}

// A smaller batch that took longer than a larger one was disturbed.
func TestDisturbed(t *testing.T) {
	m := model(row(conv, 1, 1000, false, 280), row(conv, 4, 1000, false, 566), row(conv, 8, 1000, false, 396))
	wantTime(t, m, conv, 1, 1000, false, 280, cop.Measured)
	wantTime(t, m, conv, 4, 1000, false, 396, cop.Measured)
	wantTime(t, m, conv, 8, 1000, false, 396, cop.Measured)
	if d := m.Disturbed(0.05); len(d) != 1 || d[0].Batch != 4 || d[0].Measured != 566 || d[0].Plausible != 396 {
		t.Errorf("disturbed: %+v", d)
	}
	if d := m.Disturbed(0.5); len(d) != 0 {
		t.Errorf("disturbed by more than half: %+v", d)
	}
	// Weights from the cache do not take longer than weights from memory.
	m = model(row(conv, 1, 1000, false, 100), row(conv, 1, 1000, true, 90))
	wantTime(t, m, conv, 1, 1000, false, 90, cop.Measured)
	// Nor can one thread use more than one core.
	busy := row(conv, 1, 1000, false, 4)
	busy.CPU = 5
	if e, _ := model(busy).time(conv, 1, 1000, false); e.CPU != 4 {
		t.Errorf("CPU time %v of 4", e.CPU)
	}
}

// Below a core the time is the mean under the quota, unless it was measured.
func TestParts(t *testing.T) {
	m := model(row(conv, 1, 1000, false, 100), row(conv, 4, 1000, false, 300), row(conv, 4, 500, false, 640))
	wantTime(t, m, conv, 1, 500, false, 200, cop.Derived)
	wantTime(t, m, conv, 4, 500, false, 640, cop.Measured)
	if e, _ := m.time(conv, 1, 250, false); e.CPU != 100 || e.Median != 400 {
		t.Errorf("at 250m: %+v", e)
	}
}

// Two batches on two threads are enough to estimate larger ones.
func TestAnotherSetting(t *testing.T) {
	m := model(
		row(conv, 1, 1000, false, 100), row(conv, 2, 1000, false, 180), row(conv, 4, 1000, false, 400), row(conv, 8, 1000, false, 720),
		row(conv, 1, 2000, false, 60), row(conv, 4, 2000, false, 240),
	)
	wantTime(t, m, conv, 2, 2000, false, 120, cop.Interpolated) // on its own line
	wantTime(t, m, conv, 8, 2000, false, 432, cop.Interpolated)
	if e, _ := m.time(conv, 8, 2000, false); e.CPU != 864 {
		t.Errorf("CPU time %v", e.CPU)
	}
	// Weights from memory cost 10 µs more at every batch.
	m = model(row(conv, 1, 1000, false, 100), row(conv, 8, 1000, false, 720), row(conv, 1, 1000, true, 110))
	wantTime(t, m, conv, 8, 1000, true, 730, cop.Interpolated)
	// Without weights there is no difference.
	relu := made{key: "relu", family: "Relu", in: 1000}
	m = model(row(relu, 1, 1000, false, 5), row(conv, 1, 1000, false, 100), row(conv, 1, 1000, true, 110))
	wantTime(t, m, relu, 1, 1000, true, 5, cop.Measured)
}

// An operator that was never measured in a setting changes like those of its kind.
func TestDerived(t *testing.T) {
	var rows []database.Row
	for i := range 8 {
		op := made{"op" + strconv.Itoa(i), "Gemm", 1e5 << i, 1000, 4000 << i}
		rows = append(rows, row(op, 1, 1000, false, float64(int(50)<<i)), row(op, 1, 2000, false, float64(int(30)<<i)))
	}
	lone := made{"lone", "Gemm", 3e5, 1000, 9000}
	m := model(append(rows, row(lone, 1, 1000, false, 222))...)
	wantTime(t, m, lone, 1, 2000, false, 222*0.6, cop.Derived)
}

// An exact law is found exactly, for warm and cold weights and for unmeasured batches.
func TestRegressedExactly(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	us := func(m made, b int) float64 {
		f := m.Features(b)
		return 2 + 1e-4*float64(f.FLOPs) + 2e-4*float64(f.InBytes) + 1e-3*float64(f.WeightBytes)
	}
	var rows []database.Row
	for i := range 12 {
		m := made{"op" + strconv.Itoa(i), "Conv/general", r.Int64N(1e7), r.Int64N(1e5), r.Int64N(1e6)}
		for _, b := range []int{1, 4, 32} {
			rows = append(rows, row(m, b, 1000, false, us(m, b)))
		}
	}
	fresh := made{"fresh", "Conv/general", 12345678, 77777, 54321}
	m := model(rows...)
	for _, b := range []int{1, 3, 8, 64} {
		wantTime(t, m, fresh, b, 1000, false, us(fresh, b), cop.Regressed)
	}
	own, _ := m.time(fresh, 1, 1000, false)
	fresh.family = "Conv/depthwise"
	typed, _ := m.time(fresh, 1, 1000, false)
	fresh.family = "Unheard"
	any, _ := m.time(fresh, 1, 1000, false)
	if own.Margin < 0.1 || own.Margin > 0.11 || typed.Margin <= own.Margin || any.Margin <= typed.Margin {
		t.Errorf("margins %v, %v, %v", own.Margin, typed.Margin, any.Margin)
	}
}

// Rows of another GPU share and invalid rows are ignored.
func TestOtherRows(t *testing.T) {
	gpu, bad := row(conv, 1, 1000, false, 7), row(conv, 1, 1000, false, 100)
	gpu.GPU, bad.Median = 50, math.NaN()
	rows := slices.Values([]database.Row{gpu, bad})
	if e, ok := New(rows, 0).time(conv, 1, 1000, false); ok {
		t.Errorf("without a GPU: %+v", e)
	}
	wantTime(t, New(rows, 50), conv, 1, 1000, false, 7, cop.Measured)
	for _, c := range []struct{ batch, millicores int }{{0, 1000}, {-1, 1000}, {1, 0}, {1, -1000}, {1, 3000}} {
		if e, ok := New(rows, 50).time(conv, c.batch, c.millicores, false); ok {
			t.Errorf("b = %d at %dm: %+v", c.batch, c.millicores, e)
		}
	}
}

// The fixed cost of a run is not used to estimate operators.
func TestRunIsApart(t *testing.T) {
	run := made{key: "Run 1", family: "Run", in: 4000}
	m := model(row(run, 1, 1000, false, 50), row(made{key: "Run 2", family: "Run", in: 40000}, 1, 1000, false, 95))
	if e, ok := m.time(conv, 1, 1000, false); ok {
		t.Errorf("a convolution from two runs: %+v", e)
	}
	// On the line through the two.
	wantTime(t, m, made{key: "Run 3", family: "Run", in: 13000}, 1, 1000, false, 61.25, cop.Regressed)
}

// The sizes at which runs are measured differ so much that a law without the smallest or the largest
// would be wrong many times over. A part of a model spends a twentieth of its time on what a run costs,
// so a margin of 10 would raise its own by half. The times are of an AMD EPYC.
func TestMarginOfRuns(t *testing.T) {
	var rows []database.Row
	for elements, us := range map[int64]float64{1: 13.1, 4096: 38, 65536: 569, 262144: 2477, 1 << 20: 10252, 4 << 20: 42457} {
		rows = append(rows, row(made{key: "Run " + strconv.FormatInt(elements, 10), family: "Run", in: 4 * elements}, 1, 1000, false, us))
	}
	e, ok := model(rows...).time(made{key: "Run", family: "Run", in: 2 << 20}, 1, 1000, false)
	if !ok || math.Abs(e.Median/5000-1) > 0.1 || e.Margin > 0.5 {
		t.Errorf("%+v", e)
	}
}
