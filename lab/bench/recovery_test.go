package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
)

const ms = time.Millisecond

var bench = Recovery{Rate: 10, SLO: 50 * ms, Before: 10 * time.Second, Busy: 10 * time.Second, After: 20 * time.Second, Loops: 2, Window: 10 * time.Second}

// announced returns a history of both functions with ten requests each second. bad returns
// how many of them are late or lost, by second.
func announced(bad func(second int) (late, lost int)) *history {
	h := newHistory(len(models), bench.SLO)
	for second := range 40 {
		late, lost := bad(second)
		for i := range 10 {
			for f := range models {
				o := load.Observed{Target: f, At: time.Duration(second)*time.Second + time.Duration(i)*100*ms, Latency: 10 * ms, Good: true}
				if i < late {
					o.Latency = 80 * ms
				}
				if i >= 10-lost {
					o.Good = false
				}
				h.observe(o)
			}
		}
	}
	return h
}

func figures(t *testing.T, h *history, ended time.Duration) map[string]report.Result {
	t.Helper()
	r := report.New("bench recovery", time.Now())
	bench.add(r, h, ended)
	all := map[string]report.Result{}
	for _, x := range r.Results {
		if _, twice := all[x.Name]; twice {
			t.Errorf("%s is there twice", x.Name)
		}
		all[x.Name] = x
	}
	return all
}

// While the loops run, half of the requests are late and a tenth are lost. Three seconds
// later all are good.
func TestRecovery(t *testing.T) {
	got := figures(t, announced(func(second int) (late, lost int) {
		switch {
		case second >= 10 && second < 20:
			return 5, 1
		case second >= 20 && second < 23:
			return 1, 0
		}
		return 0, 0
	}), 20*time.Second)
	for name, want := range map[string]float64{
		"mnist.from_0s.within_slo.share": 1, "mnist.from_0s.latency.p99_ms": 10,
		"mnist.from_10s.answered.share": 0.9, "dssm.from_10s.within_slo.share": 0.4, "dssm.from_10s.latency.p99_ms": 80,
		"dssm.from_20s.within_slo.share": 0.97, "mnist.from_30s.within_slo.share": 1, "recovered": 1, "recovery.s": 3,
	} {
		if x, ok := got[name]; !ok || x.Value < want-1e-9 || x.Value > want+1e-9 {
			t.Errorf("%s is %+v, want %v", name, x, want)
		}
	}
	if !strings.HasPrefix(got["mnist.from_10s.latency.p99_ms"].Note, "2 loops") {
		t.Errorf("%+v", got["mnist.from_10s.latency.p99_ms"])
	}
}

// One or two good seconds between bad ones are no recovery. The result says so if the run
// ends too early.
func TestNotRecovered(t *testing.T) {
	got := figures(t, announced(func(second int) (late, lost int) {
		if second%4 == 0 {
			return 0, 1
		}
		return 0, 0
	}), 21*time.Second)
	if got["recovered"].Value != 0 || got["recovery.s"].Value != 19 || !strings.Contains(got["recovery.s"].Note, "longer") {
		t.Errorf("%+v %+v", got["recovered"], got["recovery.s"])
	}
	got = figures(t, announced(func(int) (late, lost int) { return 0, 0 }), 36*time.Second)
	if got["recovered"].Value != 0 {
		t.Errorf("four good seconds are a recovery: %+v", got["recovery.s"])
	}
}

// The result has a warning if functions did not do well before the disturbance.
func TestNotWellBefore(t *testing.T) {
	for _, c := range []struct {
		late int
		says bool
	}{{0, false}, {2, true}} {
		got := figures(t, announced(func(second int) (late, lost int) {
			if second == 7 {
				return c.late, 0
			}
			return 0, 0
		}), 20*time.Second)
		if strings.Contains(got["recovery.s"].Note, "before the loops either") != c.says || got["recovered"].Value != 1 {
			t.Errorf("%d late: %+v", c.late, got["recovery.s"])
		}
	}
}

func TestWhereNothingIsSent(t *testing.T) {
	got := figures(t, newHistory(len(models), bench.SLO), 20*time.Second)
	if got["mnist.from_0s.answered.share"].Value != 1 || got["recovery.s"].Value != 0 {
		t.Errorf("%+v", got)
	}
}

func TestBadOptions(t *testing.T) {
	for flag, change := range map[string]func(b *Recovery){
		"--rate": func(b *Recovery) { b.Rate = 0 }, "--slo": func(b *Recovery) { b.SLO = 0 }, "--loops": func(b *Recovery) { b.Loops = 0 },
		"--window": func(b *Recovery) { b.Window = time.Millisecond }, "--before": func(b *Recovery) { b.Before = 0 },
		"--busy": func(b *Recovery) { b.Busy = -1 }, "--after": func(b *Recovery) { b.After = time.Second },
	} {
		b := bench
		change(&b)
		if err := b.Check(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if err := bench.Check(); err != nil {
		t.Error(err)
	}
}
