package control

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

func stays(f *provider.Function) { f.Inference.KeepAlive = time.Hour }

// in is an instance as the controller knows it. Its lock must be held.
func (r *rig) in(id cluster.InstanceID) *instance {
	r.t.Helper()
	in, ok := r.keeper.Instance(id)
	if !ok {
		r.t.Fatalf("%s is gone", id)
	}
	return in
}

// A shadow that fails delays the next one. The other pairs still count as pairs, and the failures are
// forgotten when a shadow lives.
func TestPairsStayWhenAShadowFails(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		_, s := r.helped(shadows, "model", stays)
		h := r.engine.(*helper)
		h.paused.Store(false)
		h.unpaired.Store(false)
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{Refuse: errors.New("no")} })
		r.backend.crash(s.ID, "killed")
		r.until("paused", h.paused.Load)
		time.Sleep(time.Minute)
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{} })
		r.until("told", func() bool { return strings.Contains(shadows.last(), " f-") })
		time.Sleep(15 * time.Second)
		if h.unpaired.Load() {
			t.Error("the engine knew no pairs for a time")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := r.functions[full("f")].shadows.Failures.Count; n != 0 {
			t.Errorf("%d failures are remembered while a shadow lives", n)
		}
	})
}

// A body that refuses its shadows for the second time loses them, and gets another one only after a
// pause that grows.
func TestBodiesThatRefuseStayAlone(t *testing.T) {
	shadows := &fakeShadows{refuses: errors.New("its segments do not open")}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		r.mu.Lock()
		r.engine = &helper{Scaler: r.engine}
		r.mu.Unlock()
		r.measured("f", "model", withShadows, stays)
		r.answered("f", "model")
		r.until("refused twice", func() bool { return r.refusals(shadows) == 2 })
		r.until("alone", func() bool { return len(r.backend.living()) == 1 && strings.HasSuffix(shadows.last(), ":") })
		if s, _ := r.Status(full("f")); !strings.HasSuffix(s.Plan, "; an instance has none for a time: its segments do not open") {
			t.Errorf("shown as %s", s.Plan)
		}
		time.Sleep(time.Hour / 2)
		if n := r.refusals(shadows); n < 6 || n > 20 {
			t.Errorf("the body was told %d times in half an hour", n)
		}
		shadows.mu.Lock()
		shadows.refuses = nil
		shadows.mu.Unlock()
		time.Sleep(10 * time.Minute)
		r.answered("f", "model")
		r.until("told", func() bool { return strings.Contains(shadows.last(), " f-") })
	})
}

func (*rig) refusals(s *fakeShadows) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

// A body is told a new shadow as soon as that is ready.
func TestNewShadowsAreToldAtOnce(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		_, s := r.helped(shadows, "model", stays)
		time.Sleep(3 * time.Second)
		r.backend.crash(s.ID, "killed")
		r.until("told", func() bool {
			return strings.Contains(shadows.last(), " f-") && !strings.Contains(shadows.last(), string(s.ID))
		})
		for _, in := range r.backend.living() {
			if took := time.Since(in.ReadyAt); in.Role == cluster.Shadow && took > 50*time.Millisecond {
				t.Errorf("told %v after it was ready", took)
			}
		}
	})
}

// A body stops using a shadow before that is stopped.
func TestBodiesAreToldBeforeShadowsStop(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, s := r.helped(shadows, "model", stays)
		r.engine.(*helper).parts.Store(true)
		state := func() cluster.State {
			r.backend.Mu.Lock()
			defer r.backend.Mu.Unlock()
			if in, ok := r.backend.Running[s.ID]; ok {
				return in.State
			}
			return cluster.Exited
		}
		for range 1000 {
			time.Sleep(time.Millisecond)
			if state() != cluster.Ready {
				break
			}
		}
		if last := shadows.last(); state() == cluster.Ready || last != string(body.ID)+":" {
			t.Errorf("the shadow is %v, and the body was last told %q", state(), last)
		}
	})
}

// A shadow that cannot be said goodbye to is stopped nevertheless.
func TestShadowsStopWithoutTheirBodies(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, s := r.helped(shadows, "model", stays)
		r.mu.Lock()
		r.in(body.ID).telling = true
		r.mu.Unlock()
		r.engine.(*helper).parts.Store(true)
		r.until("stopped", func() bool { return !r.lives(s.ID) })
	})
}

// A deployment that changes nothing keeps the shadows current, too, so they can get another body.
func TestShadowsOfTheNextRevision(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, s := r.helped(shadows, "model", stays)
		r.deploy("f", "model", withShadows, stays)
		r.until("served", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.functions[full("f")].Revision == r.revision
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.in(body.ID).Current() || !r.in(s.ID).Current() {
			t.Error("the body or its shadow is of an earlier revision")
		}
	})
}

// An instance that fills its batches gets none from its pair's times that would be late.
func TestPairsBatchesAreInTime(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, _ := r.helped(shadows, "model", stays, func(f *provider.Function) { f.Inference.Policy = batching.InFlessName })
		r.mu.Lock()
		defer r.mu.Unlock()
		in := r.in(body.ID)
		in.table = r.functions[full("f")].artefacts[0].paces[0].times.Profile().Table(8, capacity.ShareOf(in.Config))
		in.batch = 8
		if d := in.describe(); len(d.Exec) != 8 {
			t.Errorf("a pair has batches of up to %d", len(d.Exec))
		}
		in.pairRatio = float64(in.function.Inference.SLO/2) / float64(in.helped.Table(in.table)[3])
		d := in.describe()
		if n := len(d.Exec); n != d.Config.Batch || n < 1 || n > 4 || r.rules.Usable(in.function.Function, d.Exec) != n {
			t.Errorf("batches of up to %d take %v, with an objective of %v", n, d.Exec, in.function.Inference.SLO)
		}
	})
}

// Plans learn how slow a pair is by batches that are full for it, although its body alone could take larger
// ones. Smaller ones show nothing, and neither does one request that was faster than predicted.
func TestPlansLearnFromSlowPairs(t *testing.T) {
	for _, policy := range []string{batching.InFlessName, batching.SharedName} {
		shadows := &fakeShadows{}
		tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
			body, _ := r.helped(shadows, "model", stays, func(f *provider.Function) { f.Inference.Policy = policy })
			r.mu.Lock()
			defer r.mu.Unlock()
			in := r.in(body.ID)
			in.table = r.functions[full("f")].artefacts[0].paces[0].times.Profile().Table(8, capacity.ShareOf(in.Config))
			in.batch, in.pairRatio = 8, float64(2*in.function.Inference.SLO/3)/float64(in.helped.Table(in.table)[3])
			in.describe()
			size := in.pairFull
			if size < 2 || size == 8 {
				t.Fatalf("%s: full batches have %d requests", policy, size)
			}
			ran := func(size int, times float64) float64 {
				for range 100 {
					exec := time.Duration(times * float64(in.helped.Table(in.table)[size-1]))
					in.executedAsPair(time.Now(), dispatch.Executed{Instance: body.ID, Size: size, Exec: exec})
					in.pairFull = max(in.pairFull, 2) // Not one request alone.
				}
				return in.helped.Shown().Planned
			}
			if got := ran(1, 1.5); got != 1 {
				t.Errorf("%s: batches that are not full count as %v times as slow", policy, got)
			}
			in.pairFull = size
			if got := ran(size, 1.5); got < 1.4 || got > 1.6 {
				t.Errorf("%s: pairs that take 1.5 times as long count as %v times as slow", policy, got)
			}
			for range 100 {
				in.pairFull = 1
				in.executedAsPair(time.Now(), dispatch.Executed{Instance: body.ID, Size: 1, Exec: in.helped.Table(in.table)[0] / 2})
			}
			for range 10 {
				in.pairFull = 1
				in.executedAsPair(time.Now(), dispatch.Executed{Instance: body.ID, Size: 1, Exec: 2 * in.helped.Table(in.table)[0]})
			}
			if got := in.helped.Shown().Planned; got < 1.5 {
				t.Errorf("%s: single requests without another one beside them hide slow ones: %v", policy, got)
			}
		})
	}
}

// What pairs have shown outlives an update that keeps their bodies, and these go on to be learnt from.
func TestUpdatesKeepWhatPairsHaveShown(t *testing.T) {
	shadows := &fakeShadows{}
	tryWith(t, func(o *Options) { o.Shadows = shadows.on }, func(r *rig) {
		body, _ := r.helped(shadows, "model", stays)
		r.mu.Lock()
		before := r.in(body.ID).helped
		for range 100 {
			before.Executed(time.Now(), 1.5)
		}
		slower := before.Shown().Planned
		r.mu.Unlock()
		r.deploy("f", "model", withShadows, stays, func(f *provider.Function) { f.Inference.Percentile = 98 })
		time.Sleep(5 * time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		fn := r.functions[full("f")]
		in := r.in(body.ID)
		d := fn.artefacts[0].division(before.Of())
		if fn.Revision != r.revision || !in.Current() || d == nil || d == before {
			t.Fatalf("revision %d is served, the body is current: %v, its division is new: %v", fn.Revision, in.Current(), d != before)
		}
		if in.helped != d || d.Shown().Planned != slower {
			t.Errorf("its pairs count as %v times as slow, not %v; what they show now counts: %v", d.Shown().Planned, slower, in.helped == d)
		}
	})
}
