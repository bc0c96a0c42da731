package regression

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
)

// world is a set of random operators and their times, which grow with the batch in every
// setting.
type world struct {
	r         *rand.Rand
	operators []made
	rows      []database.Row
}

func newWorld(seed uint64) *world {
	w := &world{r: rand.New(rand.NewPCG(seed, 7))}
	families := []string{"Conv", "Conv/depthwise", "Conv/pointwise", "MatMul/weight", "Reshape/view", "Softmax", "Run"}
	for i := range 1 + w.r.IntN(20) {
		w.operators = append(w.operators, w.operator(families, "op"+strconv.Itoa(i)))
	}
	for _, op := range w.operators {
		w.measure(op)
	}
	return w
}

func (w *world) operator(families []string, key string) made {
	m := made{key: key, family: families[w.r.IntN(len(families))]}
	if w.r.IntN(10) > 0 {
		m.flops, m.in, m.weights = w.r.Int64N(1e9), w.r.Int64N(1e7), w.r.Int64N(1e8)
	}
	return m
}

// measure measures some batches in some settings.
func (w *world) measure(op made) {
	for _, millicores := range []int{1000, 2000} {
		for _, cold := range []bool{false, true} {
			if w.r.IntN(3) == 0 {
				continue
			}
			us := w.r.ExpFloat64() * 100
			if cold {
				us *= 2
			}
			for b := 1; b <= 32; b *= 2 {
				us += w.r.ExpFloat64() * 50 * float64(w.r.IntN(3))
				if w.r.IntN(3) > 0 && us > 0 {
					w.rows = append(w.rows, row(op, b, millicores, cold, us))
				}
			}
		}
	}
}

// For any rows: a measured time is returned unchanged unless it contradicts another one. No
// time is negative or infinite. Larger batches never take less if no measured one did. If
// all rows take k times as long, so do all estimates.
func FuzzTime(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := newWorld(seed)
		m := model(w.rows...)
		for _, r := range w.rows {
			op := w.operators[slices.IndexFunc(w.operators, func(m made) bool { return m.key == r.Operator })]
			e, ok := m.time(op, r.Batch, r.Millicores, r.Cold)
			if slices.ContainsFunc(m.disturbed, func(d Disturbed) bool {
				return d.Operator == r.Operator && d.Batch == r.Batch && d.Millicores == r.Millicores && d.Cold == r.Cold && d.Measured == r.Median && d.Plausible == e.Median
			}) {
				r.Median, r.P95, r.CPU = e.Median, e.P95, e.CPU
			}
			if !ok || e.Median != r.Median || e.P95 != r.P95 || e.CPU != r.CPU || e.Source != cop.Measured {
				t.Fatalf("%+v was measured, got %+v", r, e)
			}
		}
		const k = 1000
		for i := range w.rows {
			w.rows[i].Median, w.rows[i].P95, w.rows[i].CPU = w.rows[i].Median*k, w.rows[i].P95*k, w.rows[i].CPU*k
		}
		slower := model(w.rows...)
		fresh := w.operator([]string{"Conv", "Gelu"}, "fresh")
		for _, op := range append(w.operators, fresh) {
			for _, s := range []setting{{500, false}, {1000, false}, {1000, true}, {2000, false}, {2000, true}} {
				checkCurve(t, m, slower, op, s, k)
			}
		}
	})
}

func checkCurve(t *testing.T, m, slower *Model, op made, s setting, k float64) {
	t.Helper()
	last := 0.0
	for b := 1; b <= 70; b++ {
		e, ok := m.time(op, b, s.millicores, s.cold)
		for _, x := range []float64{e.Median, e.P95, e.CPU, e.Margin} {
			if !(x >= 0) || math.IsInf(x, 0) {
				t.Fatalf("%s, b = %d, %+v: %+v", op.key, b, s, e)
			}
		}
		if e.Median < last*(1-1e-9) {
			t.Fatalf("%s, %+v: b = %d takes %v and b = %d %v (%v)", op.key, s, b-1, last, b, e.Median, e.Source)
		}
		last = e.Median
		more, okMore := slower.time(op, b, s.millicores, s.cold)
		if ok != okMore || e.Source != more.Source || math.Abs(e.Median*k-more.Median) > 1e-6*more.Median {
			t.Fatalf("%s, b = %d, %+v: %+v, and %v times slower %+v", op.key, b, s, e, k, more)
		}
	}
}

// The order of the rows does not matter, and a later measurement replaces an
// earlier one.
func TestOrderOfRows(t *testing.T) {
	w := newWorld(3)
	a := model(w.rows...)
	w.r.Shuffle(len(w.rows), func(i, j int) { w.rows[i], w.rows[j] = w.rows[j], w.rows[i] })
	old := w.rows[0]
	old.Median, old.MeasuredAt = 1e6, old.MeasuredAt.Add(-1)
	b := model(append(w.rows, old)...)
	for _, op := range append(w.operators, w.operator([]string{"Conv"}, "fresh")) {
		for batch := 1; batch <= 64; batch++ {
			x, okX := a.time(op, batch, 2000, true)
			y, okY := b.time(op, batch, 2000, true)
			if x != y || okX != okY {
				t.Fatalf("%s, b = %d: %+v and %+v", op.key, batch, x, y)
			}
		}
	}
}
