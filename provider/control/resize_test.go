package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// resizer is an engine that gives every instance the same quota.
type resizer struct {
	systems.Scaler
	millicores int
}

func (s *resizer) Scale(now time.Time, functions []scaling.Function, nodes []cluster.Node) scaling.Plan {
	plan := s.Scaler.Scale(now, functions, nodes)
	for _, f := range functions {
		for _, in := range f.Instances {
			if s.millicores > 0 && in.Config.CPU != s.millicores {
				config := in.Config
				config.CPU = s.millicores
				config.Batch = max(1, config.Batch/2) // The largest that the objective allows.
				plan.Resize = append(plan.Resize, scaling.Resize{Function: f.Name, ID: in.ID, Config: config})
			}
		}
	}
	return plan
}

// A resized instance keeps running. It has its new share with that share's times, and its
// own batch size.
func TestResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.options.System = greedy(r.options.System) // One instance for one request.
		r.open()
		engine := &resizer{Scaler: r.engine}
		r.engine = engine
		r.run()
		defer r.close()
		r.measured("f", "model", within(50*time.Millisecond))
		r.answered("f", "model")
		before, small := r.only(), r.known("f")

		r.ask(engine, 1000)
		r.until("resized", func() bool { return r.only().Config.CPU == 1000 })
		r.answered("f", "model")
		if now := r.only(); now.ID != before.ID || now.Config.Batch != before.Config.Batch || now.Config.Memory != before.Config.Memory {
			t.Errorf("it was %+v and is %+v", before, now)
		}
		large := r.known("f")
		if was, is := small.tables[before.ID][0], large.tables[before.ID][0]; is >= was {
			t.Errorf("on four times the share its time is %v, before it was %v", is, was)
		}
		asked := len(r.resized())
		time.Sleep(5 * time.Second)
		if again := len(r.resized()); again != asked {
			t.Errorf("it was resized again %d times", again-asked)
		}
	})
}

// An instance whose quota is raised while it starts gets it as soon as it is ready. It
// holds the room for it from the beginning.
func TestResizeOfOneThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.options.System = greedy(r.options.System)
		r.open()
		engine := &resizer{Scaler: r.engine}
		r.engine = engine
		r.run()
		defer r.close()
		r.measured("f", "model", within(50*time.Millisecond))
		answered := make(chan error, 1)
		go func() {
			_, err := r.invoke("f", "x")
			answered <- err
		}()
		r.until("starting", func() bool { return len(r.describe("f").Instances) == 1 })
		r.ask(engine, 1000)
		seen := func() cluster.Instance { return r.describe("f").Instances[0] }
		r.until("planned with", func() bool { return seen().Config.CPU == 1000 })
		if n := len(r.resized()); n > 0 || r.only().State != cluster.Starting {
			t.Errorf("the backend was asked %d times while the instance is %s", n, r.only().State)
		}
		r.until("resized", func() bool { return len(r.resized()) == 1 })
		if in := r.only(); in.State != cluster.Ready {
			t.Errorf("the quota was changed while the instance is %s", in.State)
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		r.answered("f", "model")
	})
}

// The quota of an instance that an earlier version started with more memory, none of it mapped, rises as that
// of any other: nothing starts, and the instance keeps its memory.
func TestResizeAfterAnUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := spec("old", "f", "model", 1, 4, 250)
		old.Config.Memory = 547 << 20
		r := leftWith(t, func(o *Options) { o.Mapped = func(string) int64 { return 105 << 20 } }, old)
		r.deploy("f", "model", within(50*time.Millisecond), func(f *provider.Function) { f.Inference.Limits.CPU, f.Inference.MaxReplicas = 1000, 1 })
		r.run()
		defer r.close()
		r.until("claimed", func() bool { return r.describe("f").Ready == 1 })
		r.load("f", 5*time.Millisecond, 5*time.Second) // The first ones exceed its quota.
		if now := r.only(); now.ID != "old" || now.Config.CPU <= 250 || now.Config.Memory != 547<<20 || now.Config.Mapped.Bytes != 0 {
			t.Errorf("%s has %+v", now.ID, now.Config)
		}
		if n := r.backend.asked(); n > 0 {
			t.Errorf("%d instances were started", n)
		}
	})
}

func (r *rig) ask(engine *resizer, millicores int) {
	r.mu.Lock()
	engine.millicores = millicores
	r.mu.Unlock()
	r.Wake()
}

func (r *rig) resized() []cluster.Config {
	r.backend.Mu.Lock()
	defer r.backend.Mu.Unlock()
	return append([]cluster.Config(nil), r.backend.resized...)
}

// An instance that cannot be resized stays as it is and serves, and the controller tries
// again. Others can use the resources that it did not get.
func TestResizeThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.options.System = greedy(r.options.System)
		r.backend.resizeFails = true
		r.open()
		engine := &resizer{Scaler: r.engine, millicores: 1000}
		r.engine = engine
		r.run()
		defer r.close()
		r.measured("f", "model", within(50*time.Millisecond))
		r.answered("f", "model")
		was := r.only().Config
		time.Sleep(2 * time.Second)
		r.answered("f", "model")
		if got := r.only().Config; got != was {
			t.Errorf("it has %v, it was %v", got, was)
		}
		if len(r.resized()) < 2 {
			t.Error("it was not tried again")
		}
		time.Sleep(time.Minute)
		if n := len(r.resized()); n > 8 {
			t.Errorf("in a minute it was tried %d times", n)
		}
		r.mu.Lock()
		for _, in := range r.keeper.Instances() {
			if in.Config.CPU != was.CPU && in.previousConfig == nil {
				t.Errorf("the controller takes it to have %v", in.Config)
			}
		}
		r.mu.Unlock()
	})
}
