package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/e2e/fakecluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// exchanger is an engine that exchanges one instance for another with so much CPU, in millicores, once.
type exchanger struct {
	systems.Scaler
	millicores int
}

func (s *exchanger) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	plan := s.Scaler.Scale(now, functions, nodes)
	for _, f := range functions {
		for _, in := range f.Instances {
			if s.millicores == 0 || in.State != cluster.Ready {
				continue
			}
			config, why := in.Config, scaling.Reason{Why: scaling.Rearranged}
			config.CPU, s.millicores = s.millicores, 0
			plan.Stop = append(plan.Stop, scaling.Stop{Function: f.Name, ID: in.ID, Reason: why})
			plan.Start = append(plan.Start, scaling.Start{
				Function: f.Name, Revision: f.Revision, Artefact: in.Artefact, Config: config, Node: in.Node, After: []cluster.InstanceID{in.ID},
				Succeeds: in.ID, Begins: config.CPU - in.Config.CPU, Reason: why,
			})
		}
	}
	return plan
}

// exchanging runs a function with one instance on a node of two cores, and exchanges that for one with both. It
// returns the first one.
func exchanging(t *testing.T, behave func(n int, spec cluster.InstanceSpec) fakecluster.Behaviour, f func(r *rig, first cluster.Instance)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.options.System = greedy(r.options.System)
		r.backend.widen(2000)
		r.backend.Behave = behave
		r.open()
		engine := &exchanger{Scaler: r.engine}
		r.engine = engine
		r.run()
		defer r.close()
		r.measured("f", "model", within(50*time.Millisecond))
		r.answered("f", "model")
		first := r.only()
		r.mu.Lock()
		engine.millicores = 2000
		r.mu.Unlock()
		r.Wake()
		r.until("another one starts", func() bool { return r.backend.asked() == 2 })
		f(r, first)
	})
}

// An instance that is exchanged serves until its successor does, which then gets the CPU of both.
func TestExchangedInstanceServesUntilItsSuccessorDoes(t *testing.T) {
	exchanging(t, func(int, cluster.InstanceSpec) fakecluster.Behaviour { return fakecluster.Behaviour{} }, func(r *rig, first cluster.Instance) {
		r.backend.Mu.Lock()
		begins := r.backend.Started[1].Config
		r.backend.Mu.Unlock()
		if begins.CPU != 2000-first.Config.CPU || begins.Most != 2000 || begins.Threads() != 2 {
			t.Errorf("it begins with %v and may use %d, beside %v", begins, begins.Most, first.Config)
		}
		for len(r.resized()) == 0 {
			if r.describe("f").Ready == 0 {
				t.Fatal("no instance serves")
			}
			r.answered("f", "model")
			time.Sleep(time.Millisecond)
		}
		r.until("gone", func() bool { return len(r.backend.Living()) == 1 })
		if now := r.only(); now.ID == first.ID || now.Config.CPU != 2000 || now.Config.Most != 0 {
			t.Errorf("%s has %+v", now.ID, now.Config)
		}
		r.answered("f", "model")
		r.until("settled", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			in, ok := r.keeper.Instance(r.only().ID)
			return ok && in.previousConfig == nil
		})
	})
}

// If its successor exits before it is ready, an instance stays.
func TestExchangedInstanceOutlivesASuccessorThatFails(t *testing.T) {
	second := func(n int, _ cluster.InstanceSpec) fakecluster.Behaviour {
		if n == 1 {
			return fakecluster.Behaviour{ReadyAfter: -1, ExitAfter: 50 * time.Millisecond, ExitReason: "no luck"}
		}
		return fakecluster.Behaviour{}
	}
	exchanging(t, second, func(r *rig, first cluster.Instance) {
		r.until("gone", func() bool { return len(r.backend.Living()) == 1 })
		time.Sleep(time.Second)
		if now := r.only(); now.ID != first.ID || now.State != cluster.Ready || now.Config != first.Config {
			t.Errorf("%s is %s with %v", now.ID, now.State, now.Config)
		}
		r.answered("f", "model")
	})
}

// A function that is removed meanwhile leaves nothing behind.
func TestFunctionIsRemovedDuringAnExchange(t *testing.T) {
	exchanging(t, func(int, cluster.InstanceSpec) fakecluster.Behaviour { return fakecluster.Behaviour{} }, func(r *rig, _ cluster.Instance) {
		if err := r.Remove(r.t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		r.until("all are gone", func() bool { return len(r.backend.Living()) == 0 })
	})
}
