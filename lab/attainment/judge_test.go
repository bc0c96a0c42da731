package attainment

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// Ten requests a second arrive. Those due in seconds 4 and 5, after the change at 4 s, are
// late, and one of second 8.
func TestJudge(t *testing.T) {
	s := Scenario{Shape: steady, Length: 10 * time.Second, Changes: []time.Duration{0, late}}
	slo := []time.Duration{50 * time.Millisecond}
	var seen []load.Observed
	for i := range 100 {
		at := time.Duration(i) * 100 * time.Millisecond
		o := load.Observed{At: at, Latency: 20 * time.Millisecond, Good: true}
		if second := int(at / time.Second); second == 4 || second == 5 || i == 83 {
			o.Latency = 60 * time.Millisecond
		}
		seen = append(seen, o)
	}
	o := judge(s, slo, seen)
	// 2 s to 4 s and 6 s to 10 s count.
	if o.requests != 60 || o.within != 59 || o.seconds < 5.95 || o.seconds > 6.05 {
		t.Errorf("%+v", o)
	}
	if o.settle != 5*time.Second { // Second 8 is not well: it ends 5 s after the change.
		t.Errorf("settled after %v", o.settle)
	}
	for i := range seen {
		if at := seen[i].At; at >= 8*time.Second {
			seen[i].Latency = 20 * time.Millisecond
		}
	}
	if o := judge(s, slo, seen); o.settle != 2*time.Second || o.share() != 1 {
		t.Errorf("%+v", o)
	}
}

// Half a core carries the load. The search tries the whole core and the quarter too; half
// of the core is the leanest.
func TestSearch(t *testing.T) {
	var tried [][]setting
	b, err := search(settings(Covering()[0]), func(s []setting) (outcome, error) {
		tried = append(tried, s)
		o := outcome{requests: 1000, within: 1000, seconds: 10}
		if millicores(s) < 500 {
			o.within = 400
		}
		return o, nil
	})
	want := [][]setting{{{1000, 1}}, {{750, 1}}, {{500, 1}}, {{250, 1}}}
	if err != nil || !slices.EqualFunc(tried, want, slices.Equal) || b.goodput != 100 || millicores(b.leanest) != 500 || millicores(b.fastest) != 1000 {
		t.Errorf("%v, %+v, %v", tried, b, err)
	}
}

// Under overload no request is within the objective. The search tries all settings with the
// whole core, and one with fewer cores.
func TestSearchUnderOverload(t *testing.T) {
	n := 0
	b, err := search(settings(Covering()[0]), func(s []setting) (outcome, error) {
		n++
		return outcome{requests: 1000, within: millicores(s) / 2 / s[0].count, seconds: 10}, nil
	})
	if err != nil || n != 4 || !slices.Equal(b.fastest, []setting{{1000, 1}}) || !slices.Equal(b.leanest, b.fastest) {
		t.Errorf("%d tries, %+v, %v", n, b, err)
	}
	for _, s := range settings(three) {
		if len(s) != 3 || millicores(s) > 1000 {
			t.Errorf("%v", s)
		}
	}
}

// The last of three functions cannot meet its objective with a quarter of a core. Only the
// setting that gives it half a core counts.
func TestSearchPassesSettingsThatCannotBe(t *testing.T) {
	b, err := search(settings(three), func(s []setting) (outcome, error) {
		if s[2].cpu < 500 {
			return outcome{}, nil
		}
		return outcome{requests: 100, within: 100, seconds: 10}, nil
	})
	if err != nil || b.goodput != 10 || b.fastest[2].cpu != 500 || b.leanest[2].cpu != 500 {
		t.Errorf("%+v, %v", b, err)
	}
}

// Every scenario has a name, functions with objectives, and time that counts.
func TestScenarios(t *testing.T) {
	for _, all := range [][]Scenario{Covering(), Full()} {
		seen := map[string]bool{}
		for _, s := range all {
			counted := judge(s, nil, nil).seconds
			if s.Name == "" || seen[s.Name] || len(s.Functions) == 0 || counted < 5 || s.Shape(s.Length-1) > 1 || s.Shape(0) < 0 {
				t.Errorf("%+v: %v s count", s, counted)
			}
			seen[s.Name] = true
			for _, f := range s.Functions {
				if objectives[f.Model] == 0 || f.Peak <= 0 {
					t.Errorf("%s: %+v", s.Name, f)
				}
			}
		}
	}
}
