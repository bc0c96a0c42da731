package scaling

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// FuzzPairs drives the engine over functions with shadows, while loads change and instances and
// shadows come and go. No node ever gives more than it has, an instance has one shadow at most, each
// shadow finds a body within two passes or goes once the load is known, none starts while none may, and
// under the same load plans end.
func FuzzPairs(f *testing.F) {
	for seed := range uint64(32) {
		f.Add(seed)
	}
	f.Add(uint64(279)) // A shadow that gets another body makes room in the same plan.
	f.Fuzz(func(t *testing.T, seed uint64) {
		r, disturb := rand.New(rand.NewPCG(seed, 7)), rand.New(rand.NewPCG(seed, 8))
		s := DefaultSettings()
		if seed%4 == 0 {
			s.Options = capacity.Greedy()
		}
		w := newWorld(s)
		w.coldTime = time.Duration(r.IntN(3000)) * time.Millisecond
		for i := range 1 + r.IntN(4) {
			w.nodes = append(w.nodes, node(fmt.Sprint("n", i), 1000*(1+r.IntN(8)), 0, int64(1+r.IntN(8))<<29))
		}
		for i := range 1 + r.IntN(3) {
			w.randomPairs(r, fmt.Sprint("f", i))
		}
		for range 40 {
			for _, f := range w.functions {
				switch r.IntN(6) {
				case 0:
					f.Rate, f.Waiting = 0, 0
				case 1, 2:
					f.Rate, f.Waiting = float64(r.IntN(300)), r.IntN(5)
				case 3:
					f.Instances = slices.DeleteFunc(slices.Clone(f.Instances), func(Running) bool { return r.IntN(3) == 0 })
				case 4:
					f.Shadows = slices.DeleteFunc(slices.Clone(f.Shadows), func(Running) bool { return r.IntN(3) == 0 })
				case 5:
					if r.IntN(4) == 0 {
						f.Revision++
					}
				}
				if f.Instances = slices.Clone(f.Instances); len(f.Instances) > 0 && r.IntN(8) == 0 {
					f.Instances[r.IntN(len(f.Instances))].Paired = false // It started before the function had shadows.
				}
			}
			if seed%8 < 4 {
				w.fail(disturb)
			}
			w.now = w.now.Add(time.Duration(100+r.IntN(20_000)) * time.Millisecond)
			w.checkStarts(t, w.scale())
			w.checkPairs(t, false)
			w.now = w.now.Add(100 * time.Millisecond)
			w.checkStarts(t, w.scale())
			w.checkPairs(t, true)
		}
		for _, f := range w.functions {
			f.Rate, f.Waiting = min(f.Rate, 20), 0
		}
		for range 60 {
			w.now = w.now.Add(5 * time.Second)
			w.scale()
		}
		if plan := w.scale(); len(plan.Start)+len(plan.Stop)+len(plan.Pair) > 0 {
			t.Errorf("under the same load for five minutes: %s", w.print(plan))
		}
	})
}

// randomPairs adds a function that may have shadows.
func (w *world) randomPairs(r *rand.Rand, name string) {
	f := w.function(name)
	f.SLO, f.Queue, f.Max = 500*ms, capacity.Queue(r.IntN(2)), r.IntN(4)
	w.keepAlive[name], w.parkAfter[name] = time.Hour, time.Duration(r.IntN(2)*2)*time.Second
	for _, cpu := range []int{500, 1000, 2000} {
		exec := time.Duration(100_000/cpu) * ms
		c := config(4, cpu, 0, exec)
		c.Config.Memory = 256 << 20
		f.Configs = append(f.Configs, c)
		if r.IntN(3) > 0 {
			shadow := config(4, cpu, 0, exec*time.Duration(11+r.IntN(10))/10)
			own := shadow.Config
			own.Memory = int64(1+r.IntN(4)) << 26
			shadow.Config.Concurrency = 2
			f.SharedWeights = r.IntN(2) == 0
			f.Pairings = append(f.Pairings, Pairing{
				CPU: cpu, Part: "0:3", Config: own, Pair: []capacity.Candidate{shadow},
				Whole: Footprint{32 << 20, r.Int64N(256 << 20), 60 * ms}, Shadow: Footprint{16 << 20, r.Int64N(64 << 20), 20 * ms},
			})
		}
	}
}

// fail lets instances lose their connections and have them again, shadows fail, parts be forgotten, and the
// engine start again.
func (w *world) fail(r *rand.Rand) {
	if r.IntN(20) == 0 {
		w.engine = New(w.engine.settings)
	}
	for _, f := range w.functions {
		f.Instances = slices.Clone(f.Instances)
		for i := range f.Instances {
			switch in := &f.Instances[i]; {
			case in.State == cluster.Stopping && r.IntN(2) == 0:
				in.State = cluster.Ready
			case in.State == cluster.Ready && !in.Parked && r.IntN(10) == 0:
				in.State = cluster.Stopping
			}
		}
		if f.NoShadows = r.IntN(4) == 0; r.IntN(40) == 0 {
			f.Pairings = nil
		}
	}
}

// checkStarts checks that no shadow starts while none may.
func (w *world) checkStarts(t *testing.T, plan Plan) {
	t.Helper()
	for _, s := range plan.Start {
		if s.Role == cluster.Shadow && w.function(s.Function).NoShadows {
			t.Fatalf("%s: a shadow starts, and one has just failed", s.Function)
		}
	}
}

// checkPairs checks what the world's instances and shadows hold. settled: the shadows have had two
// passes to find bodies.
func (w *world) checkPairs(t *testing.T, settled bool) {
	t.Helper()
	w.settle()
	for _, n := range w.nodes {
		if !(cluster.Resources{}).Fits(n.Free) {
			t.Fatalf("%s has %v, and %v of it is free", n.Name, n.Total, n.Free)
		}
	}
	for _, f := range w.functions {
		helped := map[cluster.InstanceID]bool{}
		for _, s := range f.Shadows {
			there := slices.ContainsFunc(f.Instances, func(in Running) bool { return in.ID == s.Body })
			if there && helped[s.Body] {
				t.Fatalf("%s: %s has two shadows", f.Name, s.Body)
			}
			if settled && w.engine.memories[f.Name].Settled(w.now, w.engine.settings.Stabilisation) && slices.ContainsFunc(f.Instances, func(in Running) bool {
				return in.ID == s.Body && !in.Paired && in.Revision == f.Revision && in.State != cluster.Stopping
			}) {
				t.Fatalf("%s: %s is the shadow of %s, which can have none", f.Name, s.ID, s.Body)
			}
			if settled && !there && len(f.Instances) > 0 && s.Revision != f.Revision {
				t.Fatalf("%s: the shadow %s of revision %d stays without a body", f.Name, s.ID, s.Revision)
			}
			helped[s.Body] = true
		}
		for _, in := range f.Instances {
			if in.Parked && helped[in.ID] && settled {
				t.Fatalf("%s: %s is parked and has a shadow", f.Name, in.ID)
			}
		}
	}
}
