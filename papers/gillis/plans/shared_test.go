package plans

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/bundles"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/store"
)

// sharedMap is what replicas share, in memory.
type sharedMap struct {
	mu    sync.Mutex
	plans map[string][]byte
	kept  []string
}

func (s *sharedMap) Plans(key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text, ok := s.plans[key]; ok {
		return text, nil
	}
	return nil, store.ErrAbsent
}

func (s *sharedMap) PutPlans(key string, plans []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans[key] = plans
	return nil
}

func (s *sharedMap) KeepPlans(keys []string, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = keys
	return nil
}

// replicas are a leader that has plans and a replica that follows, with the same model at other paths.
func replicas(t *testing.T) (shared *sharedMap, leader, follower *planned) {
	t.Helper()
	shared = &sharedMap{plans: map[string][]byte{}}
	leader, follower = newPlanned(t), newPlanned(t)
	if err := os.RemoveAll(follower.wanted.dir); err != nil {
		t.Fatal(err)
	}
	leader.loading, follower.loading = podLoading, podLoading
	leader.shared = bundles.Sharing{Plans: shared, Leads: func() bool { return true }}
	follower.shared = bundles.Sharing{Plans: shared, Leads: func() bool { return false }}
	for _, p := range []*planned{leader, follower} {
		p.models.Place = func(int, bool) error {
			t.Error("a plan is made")
			return nil
		}
	}
	return shared, leader, follower
}

// A replica that does not lead waits for the leader's plans, and uses them with its own model.
func TestReplicasShareAPlan(t *testing.T) {
	_, leader, follower := replicas(t)
	synctest.Test(t, func(t *testing.T) {
		done := make(chan error, 1)
		go func() { done <- follower.make(t.Context(), follower.wanted, true) }()
		time.Sleep(5 * time.Minute)
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		if err := leader.make(t.Context(), leader.wanted, true); err != nil { // It has them from an earlier version.
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	got, want := follower.found(t), leader.found(t)
	if len(got) != 2 || got[1].Plan.Hash() != want[1].Plan.Hash() || got[1].Profile.Memory != want[1].Profile.Memory || filepath.Dir(got[1].File) != follower.wanted.dir {
		t.Fatalf("%+v, the leader has %+v", got, want)
	}
	if text, err := os.ReadFile(got[1].File); err != nil || !strings.Contains(string(text), follower.model.File) {
		t.Errorf("its plan is not for its own model: %s, %v", text, err)
	}
}

// Functions of one model find its shared plans at the same time, as after a restart on another machine.
func TestFunctionsAdoptAPlanAtOnce(t *testing.T) {
	_, leader, follower := replicas(t)
	if err := leader.make(t.Context(), leader.wanted, true); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := os.RemoveAll(follower.wanted.dir); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				got, err := follower.WithPlans(t.Context(), follower.f, []control.Model{follower.model})
				if err != nil || len(got) != 2 {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		all.Wait()
	}
}

// A replica makes plans itself that the leader will not make, or has not made for long, and does not
// use damaged ones.
func TestReplicasPlanAlone(t *testing.T) {
	shared, _, follower := replicas(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if follower.follow(t.Context(), follower.wanted, false) || time.Since(began) > 0 {
			t.Error("it waits for what nobody makes")
		}
		if follower.follow(t.Context(), follower.wanted, true) || time.Since(began) < followFor {
			t.Errorf("it waits for %v", time.Since(began))
		}
	})
	for _, text := range []string{"no", "[null]", `[{"name": "../up"}]`, `[{"name": "empty"}]`} {
		shared.plans[follower.wanted.shared] = []byte(text)
		if follower.adopt(follower.wanted) {
			t.Errorf("it uses %s", text)
		}
	}
}

// A pod takes more memory while it loads a model than the model has. One that it would load with luck
// only is left out if it can be cut, and serves otherwise.
func TestPodsLoadWithLuck(t *testing.T) {
	p := newPlanned(t)
	p.loading = podLoading
	if err := os.Truncate(p.model.File, 100<<20); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit int64
		plans bool
		names string
	}{{200 << 20, true, "/parts-2"}, {200 << 20, false, "/"}, {280 << 20, true, "//parts-2"}} {
		p.f.Inference.Limits.Memory = c.limit
		var err error
		if p.wanted, err = p.want(p.f, p.model); err != nil {
			t.Fatal(err)
		}
		if p.write(t); c.plans {
			p.write(t, servedMnist(p.wanted))
		}
		names := ""
		for _, m := range p.found(t) {
			names += "/" + m.Name
		}
		if names != c.names {
			t.Errorf("with %d MiB, plans: %t, the models are %q, want %q", c.limit>>20, c.plans, names, c.names)
		}
	}
	if got, want := p.held(96<<20+270<<20)>>20, int64(96+100); got != want {
		t.Errorf("a plan for 366 MiB may use %d, want %d", got, want)
	}
}

// away are files of models whose weights are known while no registry answers.
type away struct {
	hash    string
	weights int64
}

var errAway = errors.New("no registry answers")

func (a away) Known(string) (string, int64)       { return a.hash, a.weights }
func (a away) Here(context.Context, string) error { return errAway }

// A model that a pod would load with luck only is not whole because no registry answers: there may be
// plans that the provider does not know. One that no plan helps is.
func TestPlansAreNotKnownWithoutTheRegistry(t *testing.T) {
	p := newPlanned(t)
	p.loading, p.files = podLoading, away{p.wanted.content, 100 << 20}
	for limit, want := range map[int64]error{200 << 20: errAway, 99 << 20: errAway, 280 << 20: nil} {
		p.f.Inference.Limits.Memory = limit
		got, err := p.WithPlans(t.Context(), p.f, []control.Model{p.model})
		if !errors.Is(err, want) || (err == nil) != (len(got) == 1) {
			t.Errorf("with %d MiB: %+v, %v", limit>>20, got, err)
		}
	}
	p.files = away{p.wanted.content, 50 << 20}
	p.f.Inference.Limits.Memory = partition.Overhead
	if got, err := p.WithPlans(t.Context(), p.f, []control.Model{p.model}); err != nil || len(got) != 1 {
		t.Errorf("no part fits: %+v, %v", got, err)
	}
}

// A child finds the directory of its plans written by a function that has adopted those of another
// replica. These count.
func TestPlansAreAdoptedWhileTheyAreMade(t *testing.T) {
	shared, leader, follower := replicas(t)
	if err := leader.make(t.Context(), leader.wanted, true); err != nil {
		t.Fatal(err)
	}
	text := shared.plans
	shared.plans = map[string][]byte{}
	adopted := false
	follower.models.Place = func(child int, _ bool) error {
		shared.plans = text
		adopted = follower.adopt(follower.wanted)
		return syscall.Kill(child, syscall.SIGKILL)
	}
	if err := follower.make(t.Context(), follower.wanted, false); err != nil || !adopted {
		t.Errorf("%v, adopted %v", err, adopted)
	}
	if got := follower.found(t); len(got) != 2 {
		t.Errorf("it has %+v", got)
	}
	if err := os.RemoveAll(follower.wanted.dir); err != nil {
		t.Fatal(err)
	}
	shared.plans = map[string][]byte{}
	follower.models.Place = func(child int, _ bool) error { return syscall.Kill(child, syscall.SIGKILL) }
	if err := follower.make(t.Context(), follower.wanted, false); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a killed child: %v", err)
	}
}

// Plans of a provider without prepared parts go an hour after the last function that uses them, and
// none as long as some function's plans are unknown.
func TestPlansInAClusterAreTidied(t *testing.T) {
	shared, p, _ := replicas(t)
	p.f.Name = provider.FullName("f", "team")
	deployed := types.FunctionDeployment{Service: "f", Namespace: "team", Image: "m", Annotations: &map[string]string{
		"com.openfaas.slo.latency": "1s", annotation.InferPartition: annotation.PartitionAuto,
	}}
	one, other := store.Function{Deployment: deployed}, store.Function{Deployment: deployed}
	other.Deployment.Service = "late"
	now := time.Now()
	after := func(what string, later time.Duration, stay bool, functions ...store.Function) {
		t.Helper()
		removed, err := p.tidy(now.Add(later), functions)
		if _, there := os.Stat(p.wanted.dir); err != nil || (there == nil) != stay || stay != (len(removed) == 0) {
			t.Errorf("%s: removed %v, %v", what, removed, err)
		}
	}
	after("nothing is restored", 2*time.Hour, true, one)
	p.found(t)
	after("another function is not restored", 50*time.Hour, true, one, other)
	after("it is used", 50*time.Hour, true, one)
	if !slices.Equal(shared.kept, []string{p.wanted.shared}) {
		t.Errorf("shared plans that are kept: %q", shared.kept)
	}
	after("it has just gone", 50*time.Hour+59*time.Minute, true)
	after("it went an hour ago", 51*time.Hour+time.Second, false)
	if len(shared.kept) > 0 {
		t.Errorf("shared plans that are kept: %q", shared.kept)
	}
}
