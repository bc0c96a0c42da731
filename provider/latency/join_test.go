package latency_test

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// The plan for unlike nodes has the longest times of those that suit.
func TestJoin(t *testing.T) {
	plan := func(slow string, scale float64, times ...time.Duration) latency.Plan {
		p := latency.Plan{Slow: slow, Scale: scale}
		for i, exec := range times {
			c := capacity.Candidate{Exec: exec * time.Millisecond}
			c.Config = cluster.Config{Batch: 1 << i, Resources: cluster.Resources{CPU: 1000}}
			p.Candidates = append(p.Candidates, c)
		}
		return p
	}
	refused := latency.Plan{Refuse: &annotation.Error{}}
	for name, c := range map[string]struct {
		plans []latency.Plan
		suits []bool
		lead  int
		times []time.Duration
	}{
		"alike":            {[]latency.Plan{plan("", 0, 4, 6)}, []bool{true}, 0, []time.Duration{4, 6}},
		"one is slower":    {[]latency.Plan{plan("", 0, 4, 6), plan("", 0, 8, 12)}, []bool{true, true}, 1, []time.Duration{8, 12}},
		"for small only":   {[]latency.Plan{plan("", 0, 4, 20), plan("", 0, 8, 12)}, []bool{true, true}, 1, []time.Duration{8, 20}},
		"one is too slow":  {[]latency.Plan{plan("too slow", 0.5, 40, 60), plan("", 0, 8, 12), refused}, []bool{false, true, false}, 1, []time.Duration{8, 12}},
		"all are too slow": {[]latency.Plan{plan("too slow", 0.3, 40), plan("too slow", 0.5, 20)}, []bool{true, true}, 1, []time.Duration{20}},
	} {
		joined, lead, suits := latency.Join(c.plans)
		var times []time.Duration
		for _, x := range joined.Candidates {
			times = append(times, x.Exec/time.Millisecond)
		}
		if lead != c.lead || !slices.Equal(suits, c.suits) || !slices.Equal(times, c.times) {
			t.Errorf("%s: %v, lead %d, suits %v", name, times, lead, suits)
		}
		if c.plans[0].Candidates != nil && name == "one is slower" && c.plans[1].Candidates[1].Exec != 12*time.Millisecond {
			t.Error("a plan was changed")
		}
	}
	if joined, _, _ := latency.Join([]latency.Plan{refused, refused}); joined.Refuse == nil {
		t.Error("not refused")
	}
}
