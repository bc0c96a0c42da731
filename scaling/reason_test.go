package scaling

import (
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// checkReasons fails if an action has no reason, or one that its figures contradict.
func checkReasons(t *testing.T, plan Plan, functions []Function) {
	t.Helper()
	check := func(what, function string, r Reason, allowed ...Why) {
		t.Helper()
		f := functions[slices.IndexFunc(functions, func(f Function) bool { return f.Name == function })]
		wrong := !slices.Contains(allowed, r.Why) || r.Load != f.Rate || r.Waiting != f.Waiting
		switch r.Why {
		case Load:
			wrong = wrong || f.Classes == nil && !(r.Needed > r.Carries)
		case Waiting:
			wrong = wrong || r.Waiting == 0
		case Idle:
			wrong = wrong || r.Waiting > 0
		case Evicted:
			wrong = wrong || r.For == "" || r.For == function
		case Minimum:
			wrong = wrong || f.Min == 0 && f.ScaleToZero
		}
		if wrong {
			t.Fatalf("%s of %s: %+v", what, function, r)
		}
	}
	for _, s := range plan.Start {
		check("start", s.Function, s.Reason, Load, Waiting, Minimum, Forecast, NewRevision, Replacement, OtherForm, Rearranged)
	}
	for _, u := range plan.Unpark {
		check("unpark", u.Function, u.Reason, Load, PeakLoad, Waiting, Minimum, Forecast, NewRevision, Replacement, OtherForm)
	}
	for _, s := range plan.Stop {
		check("stop", s.Function, s.Reason, Idle, Surplus, OverMax, Superseded, Evicted, Unpaired, Rearranged)
	}
	for _, p := range plan.Park {
		check("park", p.Function, p.Reason, Idle)
	}
	for _, p := range plan.Pair {
		check("pair", p.Function, p.Reason, Load)
	}
	for _, r := range plan.Resize {
		f := functions[slices.IndexFunc(functions, func(f Function) bool { return f.Name == r.Function })]
		before := f.Instances[slices.IndexFunc(f.Instances, func(in Running) bool { return in.ID == r.ID })].Config.CPU
		if r.Config.CPU > before {
			check("raise", r.Function, r.Reason, Load)
		} else {
			check("lowering", r.Function, r.Reason, Surplus)
		}
	}
}

// The figures of a reason are those of the plan: what was measured, what that needs, and what the instances
// carried before.
func TestReasons(t *testing.T) {
	w := newWorld(DefaultSettings())
	w.nodes = []cluster.Node{node("n", 2000, 0, 4<<30)}
	f := w.function("f")
	f.SLO = 100 * ms
	f.Configs = append(f.Configs, config(1, 1000, 0, 20*ms))
	step := func() Plan {
		w.now = w.now.Add(time.Second)
		return w.scale()
	}
	f.Waiting = 1
	if p := step(); len(p.Start) != 1 || p.Start[0].Why != Waiting || p.Start[0].Waiting != 1 || p.Start[0].Carries != 0 {
		t.Errorf("the first start: %+v", p.Start)
	}
	f.Waiting, f.Rate = 0, 60
	p := step()
	for n := 0; len(p.Start) == 0 && n < 5; n++ {
		p = step()
	}
	if len(p.Start) != 1 || p.Start[0].Why != Load || p.Start[0].Load != 60 || !(p.Start[0].Needed > 60) || !(p.Start[0].Carries > 20 && p.Start[0].Carries <= 50) {
		t.Errorf("under load: %+v", p.Start)
	}
	f.Rate = 0
	g := w.function("g")
	g.SLO, g.Configs, g.Waiting = 100*ms, f.Configs, 1
	p = step()
	for n := 0; len(p.Stop) == 0 && n < 60; n++ {
		p = step()
	}
	if len(p.Stop) == 0 || p.Stop[0].Why != Evicted || p.Stop[0].For != "g" || p.Stop[0].Function != "f" {
		t.Errorf("room for another: %+v", p.Stop)
	}
	g.Waiting = 0
	p = step()
	for n := 0; len(p.Stop) == 0 && n < 400; n++ {
		p = step()
	}
	if len(p.Stop) == 0 || p.Stop[0].Why != Idle || p.Stop[0].Idle < 290*time.Second {
		t.Errorf("after the keep-alive: %+v", p.Stop)
	}
}
