package scaling

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// randomWorld has a few nodes and functions without load.
func randomWorld(r *rand.Rand) *world {
	s := DefaultSettings()
	switch r.IntN(4) {
	case 0:
		s.Options = capacity.Faithful()
	case 1:
		s.Options = capacity.Greedy()
	}
	w := newWorld(s)
	w.coldTime = time.Duration(r.IntN(3000)) * ms
	for i := range 1 + r.IntN(4) {
		w.nodes = append(w.nodes, node(fmt.Sprint("n", i), 500*r.IntN(10), 100*r.IntN(2), r.Int64N(4<<30)))
	}
	for i := range 1 + r.IntN(5) {
		f := w.function(fmt.Sprint("f", i))
		f.SLO = time.Duration(10+r.IntN(200)) * ms
		f.Queue = capacity.Queue(r.IntN(2))
		f.Min, f.Max = max(0, r.IntN(6)-3), max(0, r.IntN(8)-3)
		f.ScaleToZero = r.IntN(3) > 0
		w.keepAlive[f.Name] = time.Duration(r.IntN(100)) * time.Second
		w.parkAfter[f.Name] = time.Duration(r.IntN(5)) * time.Second
		for range r.IntN(8) {
			c := config(1<<r.IntN(5), 250*(1+r.IntN(8)), 10*max(0, r.IntN(4)-2), time.Duration(1+r.IntN(60))*ms)
			c.Config.Memory = r.Int64N(1 << 30)
			c.Artefact = []string{"", "", "a", "b"}[r.IntN(4)]
			f.Configs = append(f.Configs, c)
		}
	}
	return w
}

// randomClasses are the classes of some requests, mostly none.
func randomClasses(r *rand.Rand) (all []Class) {
	for range max(0, r.IntN(6)-3) {
		c := Class{Part: r.Float64() / 2, Waiting: r.IntN(2)}
		for _, a := range []string{"", "a", "b"} {
			if r.IntN(2) > 0 {
				c.Artefacts = append(c.Artefacts, a)
			}
		}
		if c.Artefacts != nil {
			all = append(all, c)
		}
	}
	return all
}

// change sets new loads and sometimes changes a revision or kills an instance.
func (w *world) change(r *rand.Rand) {
	for _, f := range w.functions {
		switch r.IntN(6) {
		case 0:
			f.Rate, f.Waiting = 0, 0
		case 1:
			f.Waiting = r.IntN(20) * r.IntN(20)
			f.Classes = randomClasses(r)
		case 2:
			f.Revision++
		case 3:
			if len(f.Instances) > 0 {
				i := r.IntN(len(f.Instances))
				f.Instances = slices.Delete(slices.Clone(f.Instances), i, i+1)
			}
		default:
			f.Rate, f.Waiting = math.Floor(r.ExpFloat64()*200), r.IntN(3)
		}
	}
}

// shuffled returns the arguments of Scale in another order.
func (w *world) shuffled(r *rand.Rand) ([]Function, []cluster.Node) {
	var functions []Function
	for _, f := range w.functions {
		g := *f
		g.Instances, g.Configs = slices.Clone(f.Instances), slices.Clone(f.Configs)
		r.Shuffle(len(g.Instances), func(i, j int) { g.Instances[i], g.Instances[j] = g.Instances[j], g.Instances[i] })
		if f.Nodes != nil {
			g.Nodes = append([]string{}, f.Nodes...)
			r.Shuffle(len(g.Nodes), func(i, j int) { g.Nodes[i], g.Nodes[j] = g.Nodes[j], g.Nodes[i] })
		}
		r.Shuffle(len(g.Configs), func(i, j int) { g.Configs[i], g.Configs[j] = g.Configs[j], g.Configs[i] })
		functions = append(functions, g)
	}
	nodes := slices.Clone(w.nodes)
	r.Shuffle(len(functions), func(i, j int) { functions[i], functions[j] = functions[j], functions[i] })
	r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return functions, nodes
}

// check fails if a plan stops an instance that is not there, starts one that does not
// fit before the stops without waiting for them, or breaks a bound. Call it before the
// plan is carried out.
func (w *world) check(t *testing.T, plan Plan, functions []Function) {
	t.Helper()
	stopped := map[cluster.InstanceID]Running{}
	free, returned := map[string]*cluster.Node{}, map[string]bool{}
	for _, n := range w.nodes {
		free[n.Name] = &cluster.Node{Total: n.Total, Free: n.Free, Mapped: n.Mapped}
	}
	left := map[string]int{}
	for _, f := range functions {
		for _, in := range f.Instances {
			if in.Revision == f.Revision {
				left[f.Name]++
			}
		}
	}
	for _, s := range plan.Stop {
		f := functions[slices.IndexFunc(functions, func(f Function) bool { return f.Name == s.Function })]
		i := slices.IndexFunc(f.Instances, func(in Running) bool { return in.ID == s.ID })
		if i < 0 {
			t.Fatalf("stop of %s, which does not exist", s.ID)
		}
		if _, twice := stopped[s.ID]; twice {
			t.Fatalf("%s is stopped twice", s.ID)
		}
		stopped[s.ID] = f.Instances[i]
		if f.Instances[i].Revision == f.Revision {
			if left[f.Name]--; left[f.Name] < f.Min && s.Why != Rearranged && s.Why != OverMax {
				t.Fatalf("%s is stopped (%s): %d left, min %d", s.ID, s.Why, left[f.Name], f.Min)
			}
		}
	}
	w.checkParked(t, plan, functions, stopped, free, returned)
	checkReasons(t, plan, functions)
	for _, r := range plan.Resize {
		f := functions[slices.IndexFunc(functions, func(f Function) bool { return f.Name == r.Function })]
		in := f.Instances[slices.IndexFunc(f.Instances, func(in Running) bool { return in.ID == r.ID })]
		want := r.Config
		want.CPU = in.Config.CPU
		if _, gone := stopped[r.ID]; gone || want != in.Config || r.Config.Threads() != in.Config.Threads() {
			t.Fatalf("%s becomes %v, was %v", r.ID, r.Config, in.Config)
		}
		if more := r.Config.CPU - in.Config.CPU; more > 0 {
			if free[in.Node].Free.CPU -= more; free[in.Node].Free.CPU < 0 {
				t.Fatalf("%s grows by %d, which %s has not", r.ID, more, in.Node)
			}
		}
	}
	for _, s := range plan.Start {
		if f := w.function(s.Function); f.Nodes != nil && !slices.Contains(f.Nodes, s.Node) {
			t.Fatalf("%s starts on %s, and may on %v only", s.Function, s.Node, f.Nodes)
		}
		left[s.Function]++
		for _, id := range s.After {
			in, ok := stopped[id]
			if !ok || in.Node != s.Node {
				t.Fatalf("a start on %s waits for %s", s.Node, id)
			}
			if !returned[string(id)] {
				returned[string(id)] = true
				free[s.Node].Drop(in.Holds(), "")
			}
		}
		if !free[s.Node].Fits(s.Config.Resources, cluster.Tenant{}) {
			t.Fatalf("%v starts on %s, which has %v free", s.Config, s.Node, free[s.Node].Free)
		}
		free[s.Node].Hold(s.Config.Resources, "")
	}
	for _, f := range functions {
		if f.Max > 0 && left[f.Name] > f.Max {
			t.Fatalf("%s gets %d instances, max %d", f.Name, left[f.Name], f.Max)
		}
	}
}

// Whatever happens, a plan keeps to every node's room in every dimension and to Min
// and Max. It does not depend on the order of the arguments. Under a constant load
// plans become empty.
func FuzzEngine(f *testing.F) {
	for seed := range uint64(18) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r, bound := rand.New(rand.NewPCG(seed, 3)), rand.New(rand.NewPCG(seed, 5))
		w := randomWorld(r)
		bind := func() {
			if seed%3 == 2 {
				w.bind(bound)
			}
		}
		bind()
		other := New(w.engine.settings)
		step := func() Plan {
			w.now = w.now.Add(time.Second)
			w.settle()
			functions, nodes := w.shuffled(r)
			before := fmt.Sprint(functions, nodes)
			want := other.Scale(w.now, functions, nodes)
			if fmt.Sprint(functions, nodes) != before {
				t.Fatal("the arguments were changed")
			}
			got := w.scale()
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("the order of the arguments matters:\n%s%s", w.print(got), w.print(want))
			}
			w.check(t, got, functions)
			return got
		}
		for range 30 {
			w.change(r)
			bind()
			for range r.IntN(20) {
				step()
			}
		}
		// Time for the window, the keep-alive and a revision to pass.
		for range 250 {
			step()
		}
		for range 70 {
			if p := step(); len(p.Start)+len(p.Stop)+len(p.Resize)+len(p.Park)+len(p.Unpark) > 0 {
				t.Fatalf("no rest under a constant load:\n%s\n%s", w.print(p), w.instances())
			}
		}
	})
}

// The engine releases nothing before it has observed a whole window: after a restart
// of the provider the load is unknown.
func TestNothingIsReleasedRightAfterARestart(t *testing.T) {
	f := Function{Name: "f", SLO: 100 * ms, Configs: []capacity.Candidate{config(1, 1000, 0, 10*ms)}}
	for i := range 3 {
		f.Instances = append(f.Instances, Running{ID: cluster.InstanceID(fmt.Sprint("i", i)), Node: "a", Config: f.Configs[0].Config, Exec: 10 * ms, State: cluster.Ready})
	}
	nodes := []cluster.Node{node("a", 4000, 0, 8<<30)}
	e := New(DefaultSettings())
	for i := range 60 {
		if p := e.Scale(epoch.Add(time.Duration(i)*time.Second), []Function{f}, nodes); len(p.Stop) > 0 {
			t.Fatalf("second %d: %v", i, p.Stop)
		}
	}
	if p := e.Scale(epoch.Add(time.Minute), []Function{f}, nodes); len(p.Stop) != 2 {
		t.Errorf("after the window %v, want two stopped", p.Stop)
	}
	e.Scale(epoch, nil, nodes)
	if len(e.memories) != 0 {
		t.Error("a removed function is remembered")
	}
}

func TestNonsenseRates(t *testing.T) {
	for _, rate := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -5} {
		f := Function{Name: "f", Rate: rate, Waiting: 1, SLO: 100 * ms, Configs: []capacity.Candidate{config(1, 1000, 0, 10*ms)}}
		p := New(DefaultSettings()).Scale(epoch, []Function{f}, []cluster.Node{node("a", 4000, 0, 8<<30)})
		if len(p.Start) == 0 || len(p.Start) > 4 {
			t.Errorf("a rate of %v starts %d instances", rate, len(p.Start))
		}
	}
}

// The benchmark is a pass over 100 functions with 10,000 instances on 2,000 nodes, in
// the band.
func BenchmarkEngineInTheBand(b *testing.B) {
	d, nodes := fleet()
	var functions []Function
	for i := range 100 {
		f := Function{Name: fmt.Sprint("f", i), SLO: d.SLO, Configs: d.Configs, Rate: 7000}
		for k := range 100 {
			f.Instances = append(f.Instances, Running{
				ID: cluster.InstanceID(fmt.Sprintf("i%d-%d", i, k)), Node: nodes[k].Name, Config: d.Configs[0].Config,
				Exec: 12 * ms, State: cluster.Ready,
			})
		}
		functions = append(functions, f)
	}
	e, now := New(DefaultSettings()), epoch
	for b.Loop() {
		now = now.Add(time.Second)
		if p := e.Scale(now, functions, nodes); len(p.Start)+len(p.Stop) > 0 {
			b.Fatal("not in the band")
		}
	}
}
