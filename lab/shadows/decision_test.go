package shadows

import (
	"math"
	"testing"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// The example of the docs, and a choice that is 10 % dearer than the cheapest.
func TestRegret(t *testing.T) {
	if got := cost(2, 0.5, 0.25, 10); math.Abs(got-212.5) > 1e-9 {
		t.Errorf("a request costs %v core-ms", got)
	}
	pct, taken, best := regret([]option{{wayTwin, 110}, {wayPair, 100}, {waySynchronous, 120}}, wayTwin)
	if math.Abs(pct-10) > 1e-9 || taken.cost != 110 || best.name != wayPair {
		t.Errorf("%v %% with %v, the cheapest is %v", pct, taken, best)
	}
}

// Every number of rows that is allowed has a pair's batch that divisions know.
func TestCheckedRowsAreDivided(t *testing.T) {
	m := &shadow.Model{Name: "m", Rows: []int{1, 16}, Threads: []int{1}, Own: 64 << 20}
	for i, ms := range []float64{90, 10} {
		m.Blocks = append(m.Blocks, shadow.Block{MACs: 1, Weights: []int64{1, 500}[i] << 20, Activations: 1 << 20, In: 1000, Out: 1000, Ms: [][]float64{{ms, 16 * ms}}})
	}
	largest := 0
	for rows := range 100 {
		b := Bench{Rows: rows, Rounds: 1, Each: 1, DecideEach: 1}
		if b.Check() != nil {
			continue
		}
		largest = rows
		s := &subject{Bench: b, layers: m}
		if err := s.divide(); err != nil || s.division == nil {
			t.Fatalf("%d rows: %+v, %v", rows, s.division, err)
		}
		learn(s.division, s.pairRows(), 10, s.configs(10))
	}
	if largest != 11 {
		t.Errorf("up to %d rows are allowed", largest)
	}
}

// The engine's own decision: a shadow of the blocks that weigh little where each instance has weights of its
// own and memory is dear, a twin where the weights are shared, and a twin once the pair was half as fast as
// predicted.
func TestAsked(t *testing.T) {
	m := &shadow.Model{Name: "m", Rows: []int{1, 8}, Threads: []int{1}, Own: 64 << 20}
	for i, ms := range []float64{90, 10} {
		m.Blocks = append(m.Blocks, shadow.Block{MACs: 1, Weights: []int64{1, 500}[i] << 20, Activations: 1 << 20, In: 1000, Out: 1000, Ms: [][]float64{{ms, 8 * ms}}})
	}
	s := &subject{Bench: Bench{Rows: 4}, layers: m}
	if err := s.divide(); err != nil || s.auto != wayAuto || s.division.Pair.Phi.String() != "[0,1)" {
		t.Fatalf("%q, %+v, %v", s.auto, s.division, err)
	}
	configs := s.configs(10.0)
	for _, c := range []struct {
		account shadow.Accounting
		learnt  float64 // the pair's rows per second, 0 before it has run
		want    string
	}{
		{shadow.Own, 0, wayAuto}, {shadow.Shared, 0, wayTwin}, {shadow.Own, 20, wayAuto}, {shadow.Own, 10, wayElsewhere},
	} {
		d := *s.division
		if c.learnt > 0 {
			learn(&d, s.pairRows(), c.learnt, configs)
		}
		got, err := s.asked(question{account: c.account, price: 0.5, configs: configs, division: &d})
		if err != nil || got != c.want {
			t.Errorf("%s weights, a pair with %v rows/s: %q, %v", c.account, c.learnt, got, err)
		}
	}
	if got, err := s.asked(question{account: shadow.Own, price: 0.5, configs: configs}); err != nil || got != wayElsewhere {
		t.Errorf("without a part: %q, %v", got, err)
	}
	if note := s.doubt(shadow.Shared, 0.5); note != "" {
		t.Errorf("without a margin: %s", note)
	}
	if s.margin = 0.5; s.doubt(shadow.Shared, 0.5) == "" {
		t.Error("a margin of 50 % leaves no doubt")
	}
}
