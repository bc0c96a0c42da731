package systems

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// asked is an engine that records its calls.
type asked struct{ functions [][]scaling.Function }

func (a *asked) Scale(_ time.Time, functions []scaling.Function, _ []cluster.Node) scaling.Plan {
	a.functions = append(a.functions, append([]scaling.Function(nil), functions...))
	return scaling.Plan{Unplaced: []scaling.Unplaced{{}}}
}

func TestSystemsThatLookOnceInAPeriod(t *testing.T) {
	engine := &asked{}
	p := &paced{Scaler: engine, period: time.Second}
	start := time.Unix(1000, 0)
	warm := scaling.Function{Name: "warm", Waiting: 50, Instances: []scaling.Running{{State: cluster.Starting}}}
	cold := scaling.Function{Name: "cold", Waiting: 50, Instances: []scaling.Running{{State: cluster.Stopping}}}
	for _, c := range []struct {
		after     time.Duration
		functions []scaling.Function
		calls     int
	}{
		{0, []scaling.Function{warm}, 1},
		{100 * ms, []scaling.Function{warm}, 1},
		{200 * ms, []scaling.Function{warm, cold}, 2}, // A cold request waits for no look.
		{300 * ms, []scaling.Function{warm}, 2},
		{time.Second, []scaling.Function{warm}, 3},
		{1900 * ms, []scaling.Function{warm}, 3},
		{2 * time.Second, nil, 4},
	} {
		plan := p.Scale(start.Add(c.after), c.functions, nil)
		if len(engine.functions) != c.calls {
			t.Errorf("after %v the engine was asked %d times, want %d", c.after, len(engine.functions), c.calls)
		}
		if len(plan.Unplaced) > 1 {
			t.Errorf("after %v: %+v", c.after, plan)
		}
	}
	if got := engine.functions[1]; got[0].Waiting != 0 || got[1].Waiting != 1 {
		t.Errorf("the engine sees %d and %d waiting, want none and one", got[0].Waiting, got[1].Waiting)
	}
	if warm.Waiting != 50 {
		t.Error("what was given has changed")
	}
}
