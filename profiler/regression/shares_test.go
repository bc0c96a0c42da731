package regression

import (
	"math"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
)

// on makes a row that was measured on a share of a GPU.
func on(gpu int, r database.Row) database.Row {
	r.GPU, r.CPU = gpu, 0
	return r
}

func shares(rows ...database.Row) *Shares { return NewShares(slices.Values(rows)) }

func wantOn(t *testing.T, s *Shares, gpu int, op asked, batch int, us float64, source cop.Source) {
	t.Helper()
	e, ok := onShare{s, gpu}.time(op, batch, 1000, false)
	if ok != (us > 0) || math.Abs(e.Median-us) > 1e-6*us || ok && e.Source != source || e.CPU != 0 {
		t.Errorf("b = %d on %d %%: %+v, %v; want %v µs %v", batch, gpu, e, ok, us, source)
	}
}

// 800 µs on 20 % and 500 on 40 % are 200 + 12000/g. Rows of the CPU do not count.
func TestShares(t *testing.T) {
	s := shares(on(20, row(conv, 1, 1000, false, 800)), on(40, row(conv, 1, 1000, false, 500)), on(40, row(conv, 4, 1000, false, 800)),
		on(20, row(conv, 4, 1000, false, 1400)), row(conv, 1, 1000, false, 1))
	if got := s.Measured(); !slices.Equal(got, []int{20, 40}) {
		t.Error(got)
	}
	wantOn(t, s, 20, conv, 1, 800, cop.Measured)
	wantOn(t, s, 30, conv, 1, 600, cop.Interpolated)
	wantOn(t, s, 40, conv, 1, 500, cop.Measured)
	wantOn(t, s, 100, conv, 1, 500, cop.Measured)
	wantOn(t, s, 19, conv, 1, 0, 0)
	wantOn(t, s, 30, conv, 2, 600+(1000-600)/3.0, cop.Interpolated)
}

// A disturbed row does not make a larger share slower than a smaller one.
func TestSharesNeverRise(t *testing.T) {
	s := shares(on(10, row(conv, 1, 1000, false, 900)), on(50, row(conv, 1, 1000, false, 500)), on(100, row(conv, 1, 1000, false, 600)))
	wantOn(t, s, 50, conv, 1, 600, cop.Measured)
	last := 0.0
	for g := 100; g >= 10; g-- {
		e, ok := onShare{s, g}.time(conv, 1, 1000, false)
		if !ok || e.Median < last-1e-9 || e.P95 < e.Median {
			t.Fatalf("on %d %%: %+v after %v", g, e, last)
		}
		last = e.Median
	}
}

// An operator's own rows count before those of others, on whatever share.
func TestSharesOfOthers(t *testing.T) {
	other := conv
	other.key = "conv 5x5"
	s := shares(on(20, row(conv, 1, 1000, false, 800)), on(40, row(other, 1, 1000, false, 50)), on(80, row(conv, 1, 1000, false, 200)))
	wantOn(t, s, 40, conv, 1, 400, cop.Interpolated) // 0 + 16000/g
	unknown := conv
	unknown.key = "conv 7x7"
	if e, ok := (onShare{s, 40}).time(unknown, 1, 1000, false); !ok || e.Source != cop.Regressed {
		t.Errorf("%+v, %v", e, ok)
	}
}
