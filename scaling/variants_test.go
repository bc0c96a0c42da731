package scaling

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// variantsWorld is a node with cores for a function with two variants: a precise one, and a
// rough one that takes half as long. Batches of b take (b+1)/2 times as long as one request.
func variantsWorld(cores int) (*world, *Function) {
	w := newWorld(DefaultSettings())
	w.nodes = []cluster.Node{node("n", 1000*cores, 0, 64<<30)}
	f := w.function("f")
	f.SLO, f.Percentile, f.Queue = 200*ms, 99, capacity.LateBound
	w.largest["f"] = 8
	for name, v := range map[string]struct {
		one      time.Duration
		accuracy float64
	}{"precise": {8 * ms, 80}, "rough": {4 * ms, 70}} {
		for b := 1; b <= 8; b *= 2 {
			for cpu := 100; cpu <= 1000; cpu += 100 {
				c := config(b, cpu, 0, v.one*time.Duration(b+1)/2*1000/time.Duration(cpu))
				c.Artefact, c.Accuracy = name, v.accuracy
				f.Configs = append(f.Configs, c)
			}
		}
	}
	return w, f
}

// cores is the CPU share of all instances in millicores.
func cores(f *Function) (sum float64) {
	for _, in := range f.Instances {
		sum += float64(in.Config.CPU)
	}
	return sum
}

// Where both variants cost the same, the accurate one serves; at a higher load the one that
// costs less replaces it, and the accurate one comes back with the low load (INFaaS §4.2).
func TestVariantsFollowTheLoad(t *testing.T) {
	w, f := variantsWorld(16)
	for i, step := range []struct {
		rate float64
		want string
	}{{1, "precise"}, {900, "rough"}, {1, "precise"}} {
		w.load(f, step.rate, 10)
		for range 240 {
			w.load(f, step.rate, 1)
			serving := 0.0
			for _, in := range f.Instances {
				if in.State == cluster.Ready {
					serving += float64(in.Config.Batch) / in.Exec.Seconds()
				}
			}
			if serving < step.rate {
				t.Fatalf("step %d: instances for %v/s serve while it is exchanged", i, serving)
			}
		}
		if !slices.ContainsFunc(f.Instances, func(in Running) bool { return in.Artefact == step.want }) {
			t.Errorf("step %d, %v/s: %s does not serve", i, step.rate, step.want)
		}
		alone, g := variantsWorld(16)
		g.Configs = slices.DeleteFunc(g.Configs, func(c capacity.Candidate) bool { return c.Artefact != step.want })
		alone.load(g, step.rate, 250)
		if has, least := cores(f), cores(g); has*(1-minSaved) > least {
			t.Errorf("step %d, %v/s: %vm, and %s alone takes %vm", i, step.rate, has, step.want, least)
		}
	}
}

// Under a load that does not change nothing is exchanged again and again.
func TestVariantsRest(t *testing.T) {
	for _, rate := range []float64{3, 30, 100, 250, 400, 1000} {
		w, f := variantsWorld(16)
		w.load(f, rate, 300)
		if started, _ := w.load(f, rate, 1200); len(started) > 0 {
			t.Errorf("%v/s: %d instances started", rate, len(started))
		}
	}
}

// If others take the room after the function began to leave its instances, these stay.
func TestVariantsStayWithoutRoom(t *testing.T) {
	w, f := variantsWorld(2)
	f.Configs = slices.DeleteFunc(f.Configs, func(c capacity.Candidate) bool { return c.Artefact != "precise" })
	w.load(f, 100, 120)
	_, other := variantsWorld(2)
	f.Configs = other.Configs
	free := 2000 - int(cores(f))
	g := w.function("g")
	g.Rate, g.Instances = 1, []Running{{ID: "g1", Node: "n", Config: config(1, free, 0, ms).Config, Exec: ms, Revision: 1, State: cluster.Ready, Fixed: true}}
	m := w.engine.memories["f"]
	for _, in := range f.Instances {
		m.departure.from = append(m.departure.from, in.ID)
	}
	m.departure.at = w.now
	slices.Sort(m.departure.from)
	f.Waiting = 5
	for range 100 {
		w.now, f.Rate = w.now.Add(time.Second), 100
		w.scale()
		if got := carries(f, "precise", "rough"); got < 100 {
			t.Fatalf("those that are ready carry %v/s of 100", got)
		}
	}
}

// Without room for both, the variant that runs keeps serving.
func TestVariantsNeedRoom(t *testing.T) {
	w, f := variantsWorld(2)
	f.Configs = slices.DeleteFunc(f.Configs, func(c capacity.Candidate) bool { return c.Artefact == "rough" })
	w.load(f, 150, 300)
	_, other := variantsWorld(2)
	f.Configs = other.Configs
	for range 300 {
		w.load(f, 150, 1)
		if len(f.Instances) == 0 || !slices.ContainsFunc(f.Instances, func(in Running) bool { return in.State == cluster.Ready }) {
			t.Fatal("nothing serves")
		}
	}
}

// Of many functions with variants that are due at once, a pass reconsiders some: each takes copies of
// all nodes. The others follow in the next passes, none is left out, and few take their turns at once.
func TestReconsideringTakesTurns(t *testing.T) {
	const functions = 2*mostTurns + 5
	w, like := variantsWorld(200)
	f := *like
	w.functions = nil
	for i := range functions {
		more := w.function(fmt.Sprintf("f%03d", i))
		name := more.Name
		*more = f
		more.Name, more.Rate, more.Min = name, 1, 1
		w.largest[name] = 8
	}
	had := map[string]bool{}
	for pass := range 30 {
		w.scale()
		n := 0
		for name, m := range w.engine.memories {
			if m.departure.at.Equal(w.now) {
				had[name] = true
				n++
			}
		}
		if n > mostTurns {
			t.Errorf("pass %d reconsiders %d functions", pass, n)
		}
		w.now = w.now.Add(10 * time.Second)
	}
	if len(had) != functions {
		t.Errorf("%d of %d functions had their turns", len(had), functions)
	}
}
