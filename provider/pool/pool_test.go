package pool

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

// refusing is a controller that may refuse everything. It has the latest deployment that it has accepted.
type refusing struct {
	err   error
	has   *provider.Function
	asked int
}

func (r *refusing) Deploy(_ context.Context, f *provider.Function) (provider.Dispatcher, error) {
	if r.asked++; r.err != nil {
		return nil, r.err
	}
	r.has = f
	return &lastRequest{}, nil
}

func (r *refusing) Scale(_ string, replicas uint64) error {
	if r.err == nil {
		r.has.Replicas = replicas
	}
	return r.err
}

func (r *refusing) Describe(string) (keeper.Description, bool) {
	return keeper.Description{Measured: true}, r.has != nil
}

// newTestPool returns a pool of members with objectives, by name. The model is too slow for objectives below 10 ms.
func newTestPool(t *testing.T, to *refusing, objectives map[string]string) *Pool {
	t.Helper()
	ps := New(Options{
		Metrics: metrics.New(prometheus.NewRegistry()), Logger: zerolog.Nop(), Decisions: decisions.NewLog(),
	})
	ps.runs = to
	ps.tooSlow = func(_ context.Context, f *provider.Function) error {
		if f.Inference.SLO < 10*time.Millisecond {
			return errors.New("the model is too slow")
		}
		return nil
	}
	p := newPool(ps, "k")
	ps.pools["k"] = p
	for _, name := range slices.Sorted(maps.Keys(objectives)) {
		f := deployed(t, name, "n", map[string]string{annotation.SLOLatency: objectives[name]})
		p.setFunction(f.Name, f)
		m := &member{metrics: ps.options.Metrics.Function(f.Name), all: &p.use}
		m.function.Store(f)
		p.members[f.Name] = m
	}
	if err := p.redeploy(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// A change that the controller refuses changes nothing for members. The pool asks again, ever more rarely.
func TestARefusedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &refusing{}
		p := newTestPool(t, to, map[string]string{"a": "50ms", "b": "100ms"})
		to.err = errors.New("no")
		hasty := deployed(t, "a", "n", map[string]string{annotation.SLOLatency: "1ms"})
		before := p.functions["a.n"]
		p.setFunction("a.n", hasty)
		if err := p.redeploy(t.Context()); err == nil || p.members["a.n"].hopeless.Load() != nil || len(p.hopeless) > 0 {
			t.Errorf("after a refusal (%v) the member that stays as it was is hopeless", err)
		}
		if p.setFunction("a.n", before); p.Scale("b.n", 3) == nil || p.deployed.Replicas == 3 {
			t.Errorf("the refused scaling counts: %+v", p.deployed)
		}

		p.setFunction("b.n", nil) // As when b is removed and the pool cannot follow.
		p.functions["a.n"] = hasty
		asked := to.asked
		for range 60 {
			time.Sleep(lookPause)
			p.look(t.Context())
		}
		if n := to.asked - asked; n < 3 || n > 10 {
			t.Errorf("a refused change is tried %d times in a minute", n)
		}
		to.err = nil
		for range 600 {
			time.Sleep(lookPause)
			p.look(t.Context())
		}
		if to.has.Inference.SLO != time.Millisecond || p.members["a.n"].hopeless.Load() == nil {
			t.Errorf("the pool does not follow its members: %v", to.has.Inference.SLO)
		}
	})
}

// What is decided about a pool is told about its members, also while the last one goes, and then about nobody.
func TestDecisionsOfMembers(t *testing.T) {
	p := newTestPool(t, &refusing{}, map[string]string{"a": "50ms", "b": "100ms"})
	log := p.pools.options.Decisions
	tell := func(want int) {
		t.Helper()
		log.Add(time.Now(), p.shared, decisions.Start, decisions.Fields{Instances: 1})
		if found, _ := log.Since(0, "n", "a", 0); len(found) != want {
			t.Errorf("%d decisions about a member, want %d: %+v", len(found), want, found)
		}
	}
	tell(1)
	p.setFunction("b.n", nil)
	tell(2)
	p.setFunction("a.n", nil)
	tell(2) // Joined with the one before.
	p.endIfEmpty()
	tell(2)
	if log.Members(p.shared) != nil {
		t.Errorf("the pool that ended has members %q", log.Members(p.shared))
	}
}
