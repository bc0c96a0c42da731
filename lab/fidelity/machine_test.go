package fidelity

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/sim"
)

const machineMS = time.Millisecond

// straight returns a curve of 2 + b ms, with ways of 0.5 + 0.1·b ms, of which 0.2 ms are
// the instance's handling.
func straight() *Curve {
	c := &Curve{handling: machineMS / 5}
	for _, b := range powers(16) {
		c.add(b, []time.Duration{2*machineMS + time.Duration(b)*machineMS}, []time.Duration{machineMS/2 + time.Duration(b)*machineMS/10})
	}
	return c
}

func TestCurve(t *testing.T) {
	c := straight()
	for _, b := range []float64{1, 2, 3, 3.5, 8, 12, 16, 20} {
		if got, want := c.at(c.exec, b), 2*machineMS+time.Duration(b*float64(machineMS)); got != want {
			t.Errorf("b = %v: %v, want %v", b, got, want)
		}
	}
	// 8 / (10 + 1.3 ms), and 1 / 3.6 ms.
	for largest, want := range map[int]float64{8: 708, 15: 708, 1: 277.8, 0: 277.8} {
		if got := c.Capacity(largest); got < want-1 || got > want+1 {
			t.Errorf("capacity of batches up to %d: %v, want %v", largest, got, want)
		}
	}
	if got := powers(6); len(got) != 4 || got[3] != 6 {
		t.Errorf("sizes %v", got)
	}
}

// The slowest time is left out, because a neighbour caused it. The factors are those of the
// other times.
func TestSlowestIsLeftOut(t *testing.T) {
	c := &Curve{}
	c.add(1, []time.Duration{9 * machineMS, 1000 * machineMS, 11 * machineMS}, []time.Duration{machineMS, 50 * machineMS, machineMS})
	if c.exec[0] != 10*machineMS || c.way[0] != machineMS {
		t.Errorf("exec %v, way %v", c.exec, c.way)
	}
	r := rand.New(rand.NewPCG(1, 1))
	sum := 0.0
	for range 1000 {
		f := c.factor(r)
		if f != 0.9 && f != 1.1 {
			t.Fatalf("factor %v", f)
		}
		sum += f
	}
	if sum < 980 || sum > 1020 {
		t.Errorf("the mean factor is %v", sum/1000)
	}
}

// learn returns the values from which the run was made.
func TestLearn(t *testing.T) {
	c := straight()
	pace, queue, outer := 1.5, 4*machineMS, 3*machineMS
	d := &Driven{Front: []time.Duration{machineMS, 2 * machineMS, 3 * machineMS}}
	d.Counts.Sizes = []Class{{Least: 1, Largest: 1, Batches: 30}, {Least: 2, Largest: 2, Batches: 20}, {Least: 3, Largest: 4}, {Least: 5, Largest: 8}}
	// 70 requests: 30 in batches of 1, 40 in batches of 2.
	d.Counts.Exec = time.Duration(float64(30*3*machineMS+20*4*machineMS) * pace)
	d.Counts.Queued, d.Counts.Queue = 70, 70*queue
	executions := time.Duration(float64(30*3*machineMS+40*4*machineMS) * pace / 70)
	ways := (30*6*machineMS/10 + 40*7*machineMS/10) / 70
	d.Mean = outer + queue + executions + ways
	m := learn(d, c)
	if math.Abs(m.Pace-pace) > 1e-9 || m.Way != 4*machineMS/10 || (m.Outer-outer).Abs() > time.Microsecond {
		t.Errorf("%+v", m)
	}
	if len(m.outers) != 3 || m.outers[0] >= m.outers[1] || (mean(m.outers)-outer).Abs() > time.Microsecond {
		t.Errorf("ways from outside %v", m.outers)
	}
	if m := learn(&Driven{}, c); m.Pace != 1 || m.Outer != 0 {
		t.Errorf("of nothing: %+v", m)
	}
}

func TestBetween(t *testing.T) {
	m, drift := between(Machine{Pace: 1, Way: machineMS, Outer: 2 * machineMS, outers: []time.Duration{machineMS, 3 * machineMS}}, Machine{Pace: 1.2, Way: machineMS, Outer: 4 * machineMS, outers: []time.Duration{4 * machineMS}})
	if m.Pace != 1.1 || m.Way != machineMS || m.Outer != 3*machineMS || len(m.outers) != 3 || math.Abs(drift-0.2) > 1e-9 {
		t.Errorf("%+v, drift %v", m, drift)
	}
	if _, drift := between(Machine{}, Machine{Pace: 1}); drift != 0 {
		t.Errorf("from nothing: %v", drift)
	}
}

func TestSeen(t *testing.T) {
	var h sim.Histogram
	for range 1000 {
		h.Add(10*machineMS, 1)
	}
	m := Machine{Outer: 2 * machineMS, outers: []time.Duration{machineMS, machineMS, machineMS, 5 * machineMS}}
	all, p99, within := m.Seen(&h, 12*machineMS, 1)
	if (all-12*machineMS).Abs() > machineMS/10 || (p99-15*machineMS).Abs() > machineMS/2 || within < 0.73 || within > 0.77 {
		t.Errorf("mean %v, p99 %v, within 12 ms %v", all, p99, within)
	}
	m.outers = nil
	if all, p99, within := m.Seen(&h, 13*machineMS, 1); (all-12*machineMS).Abs() > machineMS/10 || (p99-12*machineMS).Abs() > machineMS/2 || within != 1 {
		t.Errorf("mean %v, p99 %v, within 13 ms %v", all, p99, within)
	}
}

func TestTruth(t *testing.T) {
	var truth sim.Truth = &Truth{Curve: straight(), Pace: 2, Limited: true}
	// 2·(2 + 3) ms, 0.2 ms of its own, and 0.2 ms for two more requests.
	if got, ok := truth.Exec(cluster.Config{}, 3); !ok || got != 10*machineMS+4*machineMS/10 {
		t.Errorf("a batch of 3 takes %v", got)
	}
	if part, period := truth.Quota(cluster.Config{Resources: cluster.Resources{CPU: 250}}); part != 2500*time.Microsecond || period != 10*machineMS {
		t.Errorf("a quarter of a core is %v of %v", part, period)
	}
	if part, period := (&Truth{Curve: straight()}).Quota(cluster.Config{Resources: cluster.Resources{CPU: 250}}); part != 0 || period != 0 {
		t.Errorf("without quotas: %v of %v", part, period)
	}
}
