package scaling

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// A plan without some of its starts keeps the stops that others need, and those with a reason
// of their own.
func TestPlanWithoutOutdatedStarts(t *testing.T) {
	ids := func(text string) (out []cluster.InstanceID) {
		for _, id := range strings.Fields(text) {
			out = append(out, cluster.InstanceID(id))
		}
		return out
	}
	const stops = "f1 g1 g2 h1"
	for _, c := range []struct {
		name string
		// starts has the functions that get an instance, each with what it waits for; unparks
		// has instances likewise.
		starts, unparks map[string]string
		outdated        string
		// kept are the stops of f1, g1, g2 and h1 that are left.
		kept string
	}{
		{"none is outdated", map[string]string{"f": "g1"}, nil, "", stops},
		{"one that waits for nothing", map[string]string{"x": ""}, nil, "x", stops},
		{"one for which another function made room", map[string]string{"x": "g1"}, nil, "x", "f1 g2 h1"},
		{"one of two that wait for the same", map[string]string{"x": "g1 g2", "y": "g2"}, nil, "x", "f1 g2 h1"},
		{"both", map[string]string{"x": "g1 g2", "y": "g2"}, nil, "x y", "f1 h1"},
		{"one whose own instances are exchanged", map[string]string{"g": "g1"}, nil, "g", "f1 h1"},
		{"one whose own instance makes room for another", map[string]string{"g": "", "x": "g1"}, nil, "g", "f1 g1 h1"},
		{"an unpark", map[string]string{"x": "g1"}, map[string]string{"h2": "g2"}, "h2", "f1 g1 h1"},
		{"a start for whose room an unpark waits, too", map[string]string{"x": "g1"}, map[string]string{"h2": "g1"}, "x", stops},
	} {
		var p Plan
		for _, id := range ids(stops) {
			p.Stop = append(p.Stop, Stop{Function: string(id[:1]), ID: id})
		}
		for function, after := range c.starts {
			p.Start = append(p.Start, Start{Function: function, After: ids(after)})
		}
		for id, after := range c.unparks {
			p.Unpark = append(p.Unpark, Unpark{Resize{Function: id[:1], ID: cluster.InstanceID(id)}, ids(after)})
		}
		p.Resize, p.Park = []Resize{{ID: "r"}}, []Park{{ID: "p"}}
		outdated := strings.Fields(c.outdated)
		before := len(p.Start) + len(p.Unpark)
		got := p.Without(
			func(s Start) bool { return slices.Contains(outdated, s.Function) },
			func(u Unpark) bool { return slices.Contains(outdated, string(u.ID)) })
		var kept []string
		for _, s := range got.Stop {
			kept = append(kept, string(s.ID))
		}
		if strings.Join(kept, " ") != c.kept {
			t.Errorf("%s: the stops of %v are left, want %s", c.name, kept, c.kept)
		}
		if n := len(got.Start) + len(got.Unpark); n != before-len(outdated) || len(p.Start)+len(p.Unpark) != before {
			t.Errorf("%s: %d starts and unparks are left, and %d of the plan itself", c.name, n, len(p.Start)+len(p.Unpark))
		}
		if len(got.Resize) != 1 || len(got.Park) != 1 || len(p.Stop) != 4 {
			t.Errorf("%s: resizes, parks or the plan itself have changed: %+v", c.name, got)
		}
	}
}

// The engine lists in After what it stops for a start, for each way in which it makes room.
func TestStartsListTheStopsThatMadeRoom(t *testing.T) {
	w := newWorld(DefaultSettings())
	w.nodes = []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 1000, Memory: 1 << 30}}}
	config := cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 1 << 29}}
	for _, name := range []string{"f", "g"} {
		f := w.function(name)
		f.SLO, f.Configs = 200*time.Millisecond, []capacity.Candidate{{Config: config, Exec: 10 * time.Millisecond}}
	}
	g := w.function("g")
	for name, give := range map[string]func(){
		"evicted": func() {
			w.function("f").Instances = []Running{{ID: "f1", Node: "n", Config: config, Exec: 10 * time.Millisecond, Revision: 1, State: cluster.Ready, IdleSince: epoch}}
		},
		"superseded": func() {
			g.Instances = []Running{{ID: "f1", Node: "n", Config: config, Exec: 10 * time.Millisecond, State: cluster.Ready, IdleSince: epoch}}
		},
	} {
		w.function("f").Instances, g.Instances, g.Waiting = nil, nil, 1
		give()
		var functions []Function
		for _, f := range w.functions {
			functions = append(functions, *f)
		}
		w.now = w.now.Add(time.Minute)
		nodes := []cluster.Node{{Name: "n", Total: w.nodes[0].Total, Free: w.nodes[0].Total.Sub(config.Resources)}}
		p := w.engine.Scale(w.now, functions, nodes)
		if len(p.Stop) != 1 || string(p.Stop[0].Why) != name || len(p.Start) != 1 || !slices.Equal(p.Start[0].After, []cluster.InstanceID{"f1"}) {
			t.Errorf("%s: the plan is %+v", name, p)
			continue
		}
		if left := p.Without(func(s Start) bool { return s.Function == "g" }, func(Unpark) bool { return false }); len(left.Stop)+len(left.Start) != 0 {
			t.Errorf("%s: without the start there is left %+v", name, left)
		}
	}
}
