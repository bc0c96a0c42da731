package local

import (
	"math"
	"testing"
	"time"
)

const procStat = `cpu  400 0 200 1000 100 0 0 0 0 0
cpu0 100 10 50 500 40 5 5 10 77 0
cpu1 300 0 150 500 60 0 0 0 0 0
cpu10 1 1 1 1 1 1 1 1 1 1
intr 12345 0 0
`

func TestReadTicks(t *testing.T) {
	for _, test := range []struct {
		cores []int
		want  ticks
		ok    bool
	}{
		{[]int{0}, ticks{180, 720}, true},
		{[]int{0, 1}, ticks{630, 1730}, true},
		{[]int{7}, ticks{}, false},
		{nil, ticks{}, false},
	} {
		if got, ok := readTicks(procStat, test.cores); got != test.want || ok != test.ok {
			t.Errorf("%v: %v, %v", test.cores, got, ok)
		}
	}
	if _, ok := readTicks("cpu0 1 2 x 4 5", []int{0}); ok {
		t.Error("a field that is no number was read")
	}
}

func TestBusyMeter(t *testing.T) {
	var m busyMeter
	now, reads := time.Unix(1000, 0), 0
	look := func(after time.Duration, used, all uint64, want float64, wantKnown bool) {
		t.Helper()
		now = now.Add(after)
		got, known := m.look(now, func() (ticks, bool) { reads++; return ticks{used, all}, all > 0 })
		if known != wantKnown || known && math.Abs(got-want) > 1e-9 {
			t.Errorf("after %v: %v, %v; want %v, %v", after, got, known, want, wantKnown)
		}
	}
	look(0, 1000, 10000, 0, false)
	look(time.Second, 1100, 10200, 0, false)
	look(time.Second, 1100, 10400, 0.25, true) // 100 of 400.
	look(time.Second, 1500, 10600, 0.25, true) // Within the window.
	look(2*time.Second, 1500, 10900, 0.8, true)
	look(time.Hour, 1600, 20000, 0, false) // An average of an hour says nothing about now.
	look(2*time.Second, 1600, 20400, 0, true)
	look(2*time.Second, 0, 0, 0, false) // /proc/stat cannot be read.
	if reads != 6 {
		t.Errorf("%d reads", reads)
	}
}
