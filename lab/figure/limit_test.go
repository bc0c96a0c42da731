package figure

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const ms = time.Millisecond

// model takes each for every request of a batch, and each once more per batch, on one core.
// A second core brings nothing.
type model struct {
	each   time.Duration
	most   int
	spread float64
}

func (m model) Configs() (all []cluster.Config) {
	for _, cpu := range []int{1000, 2000} {
		for b := 1; b <= m.most; b *= 2 {
			all = append(all, cluster.Config{Batch: b, Resources: cluster.Resources{CPU: cpu}})
		}
	}
	return all
}

func (m model) Exec(c cluster.Config, b int) (time.Duration, bool) {
	// A batch costs as much as one request more.
	return m.each * time.Duration(b+1), b >= 1 && b <= m.most
}

func (m model) Spread() float64 { return m.spread }

// steady is a constant load in requests/s.
type steady float64

func (s steady) Rate(time.Duration) float64          { return float64(s) }
func (s steady) Next() (at time.Duration, more bool) { return 0, false }

// setup has four nodes with two cores each, and a function with the model.
func setup(t *testing.T, system string, m model, slo time.Duration) sim.Setup {
	t.Helper()
	s, err := baselines.ByName(system)
	if err != nil {
		t.Fatal(err)
	}
	total := cluster.Resources{CPU: 2000}
	out := sim.Setup{System: s, Duration: time.Minute, Functions: []sim.Function{{
		Function: systems.Function{Name: "f", SLO: slo}, Times: m, Arrivals: steady(40),
	}}}
	for _, name := range []string{"a", "b", "c", "d"} {
		out.Nodes = append(out.Nodes, cluster.Node{Name: name, Total: total})
	}
	return out
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// Eight cores execute batches of 4 in 10·5 = 50 ms: 8·4/0.05 = 640 requests/s. 99 % must be
// in time, so the factor on 40 requests/s is 640/39.6.
func TestAny(t *testing.T) {
	m := model{each: 10 * ms, most: 4}
	got, err := limitAny(setup(t, systems.INFless, m, 100*ms), []float64{40})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "the factor", got, 640/39.6)
	// In 35 ms there is time for batches of 2, in 30 ms: 8·2/0.03.
	if got, err = limitAny(setup(t, systems.INFless, m, 35*ms), []float64{40}); err != nil {
		t.Fatal(err)
	}
	near(t, "the factor under 35 ms", got, 8*2/0.03/39.6)
	s := setup(t, systems.INFless, m, 35*ms)
	s.Overhead = 10 * ms
	if got, err = limitAny(s, []float64{40}); err != nil {
		t.Fatal(err)
	}
	near(t, "with 10 ms of that on the way", got, 8*1/0.02/39.6)
}

// A batch that is late half of the time does not count with half of its rate: only one
// request in a hundred may be late.
func TestAnyWithSpread(t *testing.T) {
	m := model{each: 10 * ms, most: 4, spread: 0.1}
	got, err := limitAny(setup(t, systems.INFless, m, 51*ms), []float64{40})
	if err != nil {
		t.Fatal(err)
	}
	// Batches of 3 take 40 ms and are in time in all but seven of a thousand; those
	// of 4 take 50 ms on average.
	three, four := 8*3/0.04/40, 8*4/0.05/40
	if got < three || got > four/0.99*0.98 {
		t.Errorf("%v, want a little more than %v and less than %v", got, three, four)
	}
}

// INFless predicts 10 % more, and batches must take at most half of the SLO (Eq. 4). Of 100
// ms, 2·1.1·40 = 88 suffices for a batch of 3, 2·1.1·50 = 110 does not for 4. INFless does
// not consider batches of 3. OpenFaaS+ has one request in 20 ms on two cores.
func TestOwn(t *testing.T) {
	m := model{each: 10 * ms, most: 4}
	for system, want := range map[string]float64{systems.INFless: 8 * 2 / 0.03, baselines.OpenFaaS: 4 / 0.02, baselines.INFlessBB: 8 / 0.02} {
		got, err := limitOwn(setup(t, system, m, 100*ms), []float64{40})
		if err != nil {
			t.Fatal(err)
		}
		near(t, system, got, want/40)
	}
}

func TestRates(t *testing.T) {
	s := setup(t, systems.INFless, model{}, ms)
	got, err := limitRates(s)
	if err != nil || len(got) != 1 || math.Abs(got[0]-40) > 1e-9 {
		t.Errorf("rates %v, %v", got, err)
	}
	s.Functions[0].Arrivals = steady(0)
	if _, err := limitRates(s); err == nil {
		t.Error("no requests are no error")
	}
}
