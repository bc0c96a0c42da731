package shadow

import (
	"strings"
	"testing"
)

// everywhere is a situation in which every way can be taken.
func everywhere() Situation {
	place := Place{CPU: 1000, Memory: 1 << 30, Weights: Own, Transfer: Transfer{0.1, 0.05}}
	far := place
	far.Transfer = Transfer{0.5, 1}
	return Situation{
		Here: place, Elsewhere: far, Parked: true,
		Start: map[Way]float64{Quota: 1, Unpark: 0.3, Twin: 16, Here: 5, Elsewhere: 8, Whole: 20},
	}
}

// heavy is a model whose weights are mostly in blocks that compute little.
func heavy() *Model {
	m := linear([]float64{10, 10, 1}, []float64{5, 5, 500})
	for i := range m.Blocks {
		m.Blocks[i].Load = float64(m.Blocks[i].Weights) / mib
	}
	return m
}

func ways(t *testing.T, m *Model, o Options, s Situation) map[Way]Alternative {
	t.Helper()
	all, err := Ways(m, o, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 6 {
		t.Fatalf("%d ways", len(all))
	}
	by := make(map[Way]Alternative)
	for i, a := range all {
		by[a.Way] = a
		if i > 0 && all[i-1].Reason != "" && a.Reason == "" {
			t.Errorf("%s cannot be taken and is before %s", all[i-1].Way, a.Way)
		}
		if i > 0 && a.Reason == "" && all[i-1].Pair.Cost > a.Pair.Cost {
			t.Errorf("%s is dearer and before %s", all[i-1].Way, a.Way)
		}
	}
	return by
}

// On one node with shared weights a twin costs nothing more than a shadow and does more; with
// weights of their own, and memory that costs, the shadow is cheaper.
func TestWaysByAccounting(t *testing.T) {
	o := Options{Body: 1000, Shadow: 1000, MaxRows: 4, Rho: 1}
	s := everywhere()
	own := ways(t, heavy(), o, s)
	if own[Here].Pair.Cost >= own[Twin].Pair.Cost || own[Here].Pair.Memory >= own[Twin].Pair.Memory {
		t.Errorf("weights of their own: the shadow costs %g, the twin %g", own[Here].Pair.Cost, own[Twin].Pair.Cost)
	}
	near(t, "the shadow's start", own[Here].Ready, 5+own[Here].Pair.Load)
	near(t, "the twin's start", own[Twin].Ready, 16+510)
	near(t, "the parked one's start", own[Unpark].Ready, 0.3)
	s.Here.Weights = Shared
	shared := ways(t, heavy(), o, s)
	if shared[Here].Pair.Cost < shared[Twin].Pair.Cost {
		t.Errorf("shared: the shadow costs %g, the twin %g", shared[Here].Pair.Cost, shared[Twin].Pair.Cost)
	}
	near(t, "the twin's start, mapped", shared[Twin].Ready, 16)
	if shared[Twin].Pair.Memory >= own[Twin].Pair.Memory {
		t.Errorf("a twin takes %d shared and %d of its own", shared[Twin].Pair.Memory, own[Twin].Pair.Memory)
	}
}

// A way that cannot be taken says why.
func TestReasons(t *testing.T) {
	o := Options{Body: 1000, Shadow: 1000, MaxRows: 4, Rho: 1}
	for way, test := range map[Way]struct {
		reason string
		change func(*Situation)
	}{
		Quota:     {"no CPU is free", func(s *Situation) { s.Here.CPU = 0 }},
		Unpark:    {"no instance is parked", func(s *Situation) { s.Parked = false }},
		Twin:      {"100 MiB are free, and it takes 51", func(s *Situation) { s.Here.Memory = 100 << 20 }},
		Here:      {"500 millicores are free, and it takes 1000", func(s *Situation) { s.Here.CPU = 500 }},
		Elsewhere: {"it is not offered", func(s *Situation) { delete(s.Start, Elsewhere) }},
		Whole:     {"help is needed within 100 ms", func(s *Situation) { s.Until = 100 }},
	} {
		s := everywhere()
		if a := ways(t, heavy(), o, s)[way]; a.Reason != "" {
			t.Errorf("%s: %s", way, a.Reason)
		}
		test.change(&s)
		if a := ways(t, heavy(), o, s)[way]; !strings.Contains(a.Reason, test.reason) {
			t.Errorf("%s: %q, not %q", way, a.Reason, test.reason)
		}
	}
	s := everywhere()
	s.Need = 1000
	for way, a := range ways(t, heavy(), o, s) {
		if !strings.Contains(a.Reason, "of 1000.0 requests per second") {
			t.Errorf("%s: %q", way, a.Reason)
		}
	}
	o.SLO = 1
	for way, a := range ways(t, heavy(), o, everywhere()) {
		if a.Reason != "no batch is within the objective" {
			t.Errorf("%s: %q", way, a.Reason)
		}
	}
}

// A share is raised to what the need takes and no further.
func TestRaisedQuota(t *testing.T) {
	m := linear([]float64{10}, []float64{1})
	s := everywhere()
	s.Here.CPU = 3500
	for need, cpu := range map[float64]int{59: 600, 99: 1000, 150: 2000, 300: 4000} {
		s.Need = need
		if a := ways(t, m, Options{Body: 500, Shadow: 1000, MaxRows: 4, Rho: 0.1}, s)[Quota]; a.CPU != cpu || a.Reason != "" {
			t.Errorf("for %g requests per second: %d millicores, %q", need, a.CPU, a.Reason)
		}
	}
}
