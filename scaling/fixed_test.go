package scaling

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// If a running instance's quota cannot be raised, a new instance serves the load. Its
// quota is not lowered either.
func TestFixedInstancesAreLeftAsTheyAre(t *testing.T) {
	share := func(cpu int, exec time.Duration) capacity.Candidate {
		return capacity.Candidate{Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: cpu, Memory: 1 << 20}}, Exec: exec}
	}
	small, large := share(500, 40*time.Millisecond), share(1000, 20*time.Millisecond)
	room := []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 8000, Memory: 1 << 30}, Free: cluster.Resources{CPU: 7000, Memory: 1 << 30}}}
	plan := func(fixed bool, has capacity.Candidate, rate float64) Plan {
		f := Function{Name: "f", Revision: 1, SLO: 100 * time.Millisecond, Queue: capacity.LateBound, Configs: []capacity.Candidate{small, large}, Rate: rate, ScaleToZero: true,
			Instances: []Running{{ID: "a", Node: "n", Config: has.Config, Exec: has.Exec, Revision: 1, State: cluster.Ready, Fixed: fixed}}}
		e := New(DefaultSettings())
		e.Scale(time.Unix(0, 0), []Function{f}, room)
		return e.Scale(time.Unix(600, 0), []Function{f}, room)
	}
	if p := plan(false, small, 30); len(p.Resize) != 1 {
		t.Errorf("one whose quota can be raised: %+v", p)
	}
	if p := plan(true, small, 30); len(p.Resize) != 0 || len(p.Start) == 0 {
		t.Errorf("one whose quota cannot: %+v", p)
	}
	if p := plan(false, large, 1); len(p.Resize) != 1 {
		t.Errorf("one whose quota can be lowered: %+v", p)
	}
	if p := plan(true, large, 1); len(p.Resize) != 0 {
		t.Errorf("one whose quota cannot be lowered: %+v", p)
	}
}
