package capacity

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

func config(b, cpu, gpu int, exec time.Duration) Candidate {
	return Candidate{
		Config: cluster.Config{Batch: b, Resources: cluster.Resources{CPU: cpu, GPU: gpu, Memory: 100 << 20}},
		Exec:   exec,
	}
}

// A batch of 16 would take too long, a batch of 10 would not.
func TestBetween(t *testing.T) {
	configs := []Candidate{config(8, 4000, 10, 164*ms), config(16, 4000, 10, 284*ms), config(1, 1000, 0, 50*ms)}
	o := Production()
	got := between(configs[1], configs, o.Packed(200*ms, 1000))
	if want := 9 / 0.179; math.Abs(got-want) > 1e-6 { // 10 take 194 ms, and 10 ms to come: too long for 196
		t.Errorf("between 8 and 16: %v/s, want %v", got, want)
	}
	if got := between(configs[0], configs, o.Packed(100*ms, 1000)); got != 0 {
		t.Errorf("nothing is below: %v", got)
	}
}

// An instance whose batches are all late serves them late. A way to execute that it can leave does not.
func TestInTime(t *testing.T) {
	for queue, o := range map[Queue]Options{LateBound: Production(), PerInstance: Greedy()} {
		var r Recall
		slow := Candidate{Config: cluster.Config{Batch: 1, Concurrency: 2, Resources: cluster.Resources{CPU: 1000}}, Exec: 150 * time.Millisecond}
		quick := slow
		quick.Exec = 40 * time.Millisecond
		r.About(o, 100*time.Millisecond, 0, queue, []Candidate{slow})
		if late, none := r.Range(slow, 10), r.InTime(slow, 10); late.Up <= 0 || none.Up != 0 {
			t.Errorf("%v: %v late and %v in time", queue, late, none)
		}
		if a, b := r.Range(quick, 10), r.InTime(quick, 10); a != b || a.Up <= 0 {
			t.Errorf("%v: %v, in time %v", queue, a, b)
		}
	}
}

// An eighth of a core is a choice while one such instance carries all load, and where there is nothing larger.
func TestSmallShares(t *testing.T) {
	o := Production()
	all := []Candidate{config(1, 125, 0, 30*ms), config(1, 250, 0, 15*ms), config(1, 1000, 0, 4*ms)}
	smallest := func(load float64, configs []Candidate) int {
		least := 0
		for _, c := range o.Choices(Demand{RPS: 1, Load: load, SLO: 200 * ms, Configs: configs, Queue: LateBound}) {
			if least == 0 || c.Config.CPU < least {
				least = c.Config.CPU
			}
		}
		return least
	}
	if few, many, only := smallest(2, all), smallest(100, all), smallest(100, all[:1]); few != 125 || many != 250 || only != 125 {
		t.Errorf("at 2/s from %dm, at 100/s from %dm, and from %dm where there is nothing else", few, many, only)
	}
}
