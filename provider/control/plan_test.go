package control

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// meddling is an engine during whose plans other things happen. No two of its plans overlap.
type meddling struct {
	systems.Scaler
	t *testing.T
	// meanwhile, if it is set, is called with a plan before it is carried out.
	meanwhile atomic.Pointer[func(scaling.Plan)]
	planning  atomic.Bool
}

// during has f called with each plan from now on, nil for nothing.
func (m *meddling) during(f func(scaling.Plan)) { m.meanwhile.Store(&f) }

func (m *meddling) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	if m.planning.Swap(true) {
		m.t.Error("the engine plans twice at a time")
	}
	defer m.planning.Store(false)
	plan := m.Scaler.Scale(now, functions, nodes)
	if f := m.meanwhile.Load(); f != nil && *f != nil {
		(*f)(plan)
	}
	return plan
}

// meddle lets f happen during each plan.
func meddle(t *testing.T, f func(r *rig, m *meddling)) {
	try(t, func(r *rig) {
		r.end()
		m := &meddling{Scaler: r.engine, t: t}
		r.engine = m
		r.run()
		f(r, m)
	})
}

// Deployments, descriptions, events and removals do not wait for a plan.
func TestNothingWaitsForAPlan(t *testing.T) {
	meddle(t, func(r *rig, m *meddling) {
		r.measured("f", "m")
		r.answered("f", "m")
		id := r.only().ID
		done := make(chan struct{})
		m.during(func(scaling.Plan) { // With the lock held, each of these would hang.
			m.during(nil)
			r.describe("f")
			r.Status(full("f"))
			r.deploy("g", "m")
			if err := r.Remove(t.Context(), full("g")); err != nil {
				t.Error(err)
			}
			r.backend.crash(id, "killed by signal 9")
			r.keeper.Observe(cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: id, Function: full("f")}, State: cluster.Exited})
			close(done)
		})
		r.Wake()
		<-done
		r.answered("f", "m")
	})
}

// What a plan says about a function that was removed meanwhile is not done.
func TestPlanForARemovedFunction(t *testing.T) {
	meddle(t, func(r *rig, m *meddling) {
		r.measured("kept", "m")
		r.answered("kept", "m")
		before := r.backend.asked()
		r.measured("f", "m")
		m.during(func(p scaling.Plan) {
			if len(p.Start) == 0 {
				return
			}
			m.during(nil)
			if err := r.Remove(t.Context(), full("f")); err != nil {
				t.Error(err)
			}
		})
		if _, err := r.invoke("f", "x"); err == nil {
			t.Error("a removed function answered")
		}
		r.answered("kept", "m") // Its capacity was part of the plan, too.
		if n := r.backend.asked() - before; n != 0 {
			t.Errorf("%d instances were started for a removed function", n)
		}
	})
}

// An instance that was planned for a deployment is not started for the next one, which is
// planned at once.
func TestPlanForAnEarlierDeployment(t *testing.T) {
	meddle(t, func(r *rig, m *meddling) {
		r.measured("f", "m")
		later := 0
		m.during(func(p scaling.Plan) {
			if len(p.Start) == 0 {
				return
			}
			m.during(func(p scaling.Plan) { later += len(p.Start) })
			r.deploy("f", "slow", func(f *provider.Function) { f.Inference.SLO = 5 * time.Second })
			r.until("the new deployment is served", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.functions[full("f")].Revision == r.revision
			})
		})
		r.answered("f", "slow")
		r.end() // So that later is not written any more.
		defer r.run()
		if n := r.backend.asked(); later == 0 || n != later {
			t.Errorf("%d instances were started, want the %d that were planned for the new deployment", n, later)
		}
	})
}

// An instance that would make room for a function is not stopped if the function was removed
// or deployed again while the plan was made.
func TestNothingMakesRoomForAnOutdatedStart(t *testing.T) {
	for name, meanwhile := range map[string]func(r *rig){
		"removed": func(r *rig) {
			if err := r.Remove(r.t.Context(), full("f")); err != nil {
				r.t.Error(err)
			}
		},
		"deployed again": func(r *rig) {
			r.deploy("f", "other")
			r.until("the new deployment is served", func() bool {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.functions[full("f")].Revision == r.revision
			})
			r.mu.Lock()
			defer r.mu.Unlock()
			r.functions[full("f")].dispatcher.Close() // Nothing waits, so the new deployment needs no room.
		},
	} {
		t.Run(name, func(t *testing.T) {
			meddle(t, func(r *rig, m *meddling) {
				r.backend.widen(250)
				r.measured("kept", "m")
				r.answered("kept", "m")
				id := r.only().ID
				r.measured("f", "m")
				made := false
				m.during(func(p scaling.Plan) {
					if len(p.Stop) == 0 {
						return
					}
					m.during(nil)
					made = len(p.Start) == 1
					meanwhile(r)
				})
				if _, err := r.invoke("f", "x"); err == nil {
					t.Error("the request was answered")
				}
				time.Sleep(time.Second)
				if !made || r.only().ID != id {
					t.Errorf("the plan stopped one for another: %v; %s lives, want %s", made, r.only().ID, id)
				}
				r.answered("kept", "m")
			})
		})
	}
}

// A plan that was made before a model's times were known does not explain why the function
// has no instance.
func TestPlanBeforeTheProfile(t *testing.T) {
	meddle(t, func(r *rig, m *meddling) {
		r.deploy("f", "m")
		m.during(func(scaling.Plan) {
			m.during(nil)
			r.until("measured", func() bool { return r.describe("f").Measured })
		})
		answered := make(chan error, 1)
		go func() {
			_, err := r.invoke("f", "x")
			answered <- err
		}()
		r.until("a plan", func() bool { return r.describe("f").Measured })
		if why := r.describe("f").Problem; why != "" {
			t.Errorf("the function has the problem %q", why)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkLookHoldsTheLock measures how long one look holds the controller's lock, and how
// long its plan takes, with all functions idle and with all of them wanting an instance of
// which no more fit.
func BenchmarkLookHoldsTheLock(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := newRig(b)
			backend := &fleetBackend{fakeBackend: r.backend}
			r.options.Backend, r.options.Cold = backend, coldstart.NewFixed(time.Hour)
			whole := cluster.Resources{CPU: 8000, Memory: 32 << 30}
			backend.Machines = nil
			for i := range max(1, n/20) {
				backend.Machines = append(backend.Machines, cluster.Node{Name: fmt.Sprintf("n-%04d", i), Total: whole, Free: whole})
			}
			r.open()
			for i := range n {
				r.deploy(fmt.Sprint("f-", i), "slow", func(f *provider.Function) { f.Inference.SLO = 5 * time.Second })
			}
			for i := range n {
				r.until("measured", func() bool { return r.describe(fmt.Sprint("f-", i)).Measured })
				if err := r.Scale(full(fmt.Sprint("f-", i)), 2); err != nil {
					b.Fatal(err)
				}
			}
			timed := &timedPlans{Scaler: r.engine}
			r.engine = timed
			looks := 0
			var looked time.Duration
			for b.Loop() {
				began := time.Now()
				r.scale(began)
				looked += time.Since(began)
				looks++
				for len(backend.News) > 0 {
					r.keeper.Observe(<-backend.News)
				}
			}
			b.StopTimer()
			milliseconds := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(looks) }
			b.ReportMetric(milliseconds(timed.took), "plan-ms/look")
			b.ReportMetric(float64(timed.longest.Microseconds())/1000, "plan-ms/longest")
			b.ReportMetric(milliseconds(looked-timed.took), "locked-ms/look")
			if err := r.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// timedPlans is an engine with the time that its plans take.
type timedPlans struct {
	systems.Scaler
	took, longest time.Duration
}

func (t *timedPlans) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	began := time.Now()
	plan := t.Scaler.Scale(now, functions, nodes)
	took := time.Since(began)
	t.took, t.longest = t.took+took, max(t.longest, took)
	return plan
}
