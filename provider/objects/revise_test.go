package objects

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	openfaas "github.com/openfaas/faas-provider/types"
	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/workqueue"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/store"
)

// A rollout ends when its spec goes. A new leader knows only from the object what was rolled out.
func TestSpecIsTakenBack(t *testing.T) {
	rolls, runs := reasonRollingOut, "Deployed"
	for name, c := range map[string]struct {
		came       outcome
		rolling    bool
		told       string
		toldOf, of int64
		want       bool
	}{
		"deployed":                           {outcome{1, runs, ""}, false, runs, 1, 1, false},
		"rolled out":                         {outcome{2, rolls, ""}, true, rolls, 2, 2, false},
		"taken back at once":                 {outcome{2, rolls, ""}, true, runs, 1, 3, true},
		"taken back":                         {outcome{2, rolls, ""}, true, rolls, 2, 3, true},
		"taken back after a refused one":     {outcome{3, "Refused", "no"}, true, "Refused", 3, 4, true},
		"taken back while nobody led":        {outcome{}, false, rolls, 2, 3, true},
		"taken back, of a leader before":     {outcome{1, runs, ""}, false, rolls, 2, 3, true},
		"taken back a moment ago":            {outcome{3, runs, ""}, false, rolls, 2, 3, false},
		"deployed anew":                      {outcome{1, runs, ""}, false, runs, 1, 2, false},
		"rolled back, and something else":    {outcome{2, reasonRolledBack, ""}, false, rolls, 2, 3, false},
		"rolled out since the leader before": {outcome{2, rolls, ""}, true, runs, 1, 2, false},
	} {
		f := object(func(f *v1alpha1.Function) {
			f.Generation = c.of
			f.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Reason: c.told, ObservedGeneration: c.toldOf}}
		})
		if got := rolledOutEarlier(c.came, c.rolling, f); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if rolledOutEarlier(outcome{}, false, object(nil)) {
		t.Error("of a new object")
	}
}

// The end of a rollout that was read long ago does not replace a later one.
func TestLaterEndStays(t *testing.T) {
	end := func(revision uint64, second int, hash string) *store.RolloutEnd {
		return &store.RolloutEnd{Revision: revision, At: noon.Add(time.Duration(second) * time.Second), Hash: hash}
	}
	for name, c := range map[string]struct {
		told, written *store.RolloutEnd
		want          bool
	}{
		"the same":                      {end(5, 0, "a"), end(5, 0, "a"), true},
		"a later one by a slower clock": {end(5, 9, "a"), end(6, 0, "b"), false},
		"one that was read before":      {end(6, 0, "b"), end(5, 0, "a"), true},
		"forgotten meanwhile":           {end(5, 0, ""), end(5, 0, "a"), true},
		"promoted after all":            {end(5, 0, "a"), end(5, 1, "a"), false},
	} {
		if got := supersedes(c.told, c.written); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What kubectl deploys at once can be deployed again as well: an undo goes back by one revision.
func TestRevisionsOfKubectlAreKept(t *testing.T) {
	s := &Objects{now: func() time.Time { return noon.Time }, client: fake.NewSimpleClientset()}
	w := &watcher{Objects: s, unkept: map[string][]store.Revision{}}
	f := object(func(f *v1alpha1.Function) {
		f.UID = "1"
		f.Status.Deployed = &v1alpha1.Deployed{Revision: 1, Spec: v1alpha1.DeployedSpec{FunctionSpec: f.Spec}}
	})
	for n := uint64(2); n <= 14; n++ {
		noteRevision("key", w, f, store.Revision{Revision: n, Deployment: f.Spec.Deployment(f.Name, f.Namespace), How: "deployed"})
		for _, adopted := range []uint64{n - 1, n, n} { // It is kept once it runs.
			remember(t.Context(), w, "key", f, adopted)
			kept, err := Revisions{s}.revisionsOf(t.Context(), f)
			if err != nil || adopted == n && (len(kept) != int(min(n, keptRevisions)) || kept[len(kept)-1].Revision != int64(n)) {
				t.Fatalf("after revision %d: %d are kept, %v", n, len(kept), err)
			}
			if adopted < n && len(kept) > 0 && kept[len(kept)-1].Revision == int64(n) {
				t.Errorf("revision %d is kept before it runs", n)
			}
		}
	}
	if len(w.unkept) > 0 {
		t.Errorf("%v is not kept", w.unkept)
	}
}

// adopts is a target that notes how many instances it adopts.
type adopts struct{ replicas []uint64 }

func (a *adopts) Adopt(_ context.Context, r store.Function) error {
	a.replicas = append(a.replicas, r.Replicas)
	return nil
}

func (*adopts) Forget(context.Context, string, string) error { return nil }

// scaling returns a watcher that brings changes to a target. Its queue must be shut down.
func scaling(target Target) *watcher {
	limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
	return &watcher{
		Objects:  &Objects{now: time.Now, log: zerolog.Nop()},
		Watching: Watching{Target: target},
		queue:    workqueue.NewTypedRateLimitingQueue(limiter),
		outcomes: map[string]outcome{}, rolling: map[string]bool{},
	}
}

// While the model of a next revision is being downloaded, or its spec is refused, the present one is scaled at once: before
// the leader looks again how far the model is, and by replicas that do not lead.
func TestScaledWhileDownloading(t *testing.T) {
	for reason, err := range map[string]error{
		"Downloading": &provider.DownloadingError{Progress: "1 of 500 MB are here"},
		"Refused":     errors.New("no room"),
	} {
		target := &adopts{}
		w := scaling(target)
		var scaled int // How often it was scaled before the last look.
		w.RollOut = func(context.Context, openfaas.FunctionDeployment) (bool, error) {
			scaled = len(target.replicas)
			return true, err
		}
		f := object(func(f *v1alpha1.Function) {
			f.Annotations[v1alpha1.RevisionAnnotation] = "7"
			f.Status.Deployed = &v1alpha1.Deployed{Revision: 7, Spec: v1alpha1.DeployedSpec{FunctionSpec: f.Spec}}
			f.Spec.Image, f.Generation = "i:2", 4
		})
		for _, n := range []int64{2, 3} {
			f.Spec.Replicas = of(n)
			r, _ := w.record(f)
			w.revise(t.Context(), "k", f, r)
			if w.outcomes["k"].Reason != reason || len(target.replicas) == 0 || target.replicas[len(target.replicas)-1] != uint64(n) {
				t.Errorf("%s: %v; adopted are %v", reason, w.outcomes, target.replicas)
			}
		}
		if early := scaled > 1; early != (reason == "Downloading") {
			t.Errorf("%s: scaled before it looks: %v", reason, early)
		}
		w.queue.ShutDown()
	}
}

// The number of instances that kubectl scale writes holds for the present revision while another one is rolled out.
func TestScaledWhileRollingOut(t *testing.T) {
	target := &adopts{}
	w := scaling(target)
	defer w.queue.ShutDown()
	f := object(func(f *v1alpha1.Function) {
		f.Annotations[v1alpha1.RevisionAnnotation] = "7"
		f.Status.Deployed = &v1alpha1.Deployed{Revision: 7, Spec: v1alpha1.DeployedSpec{FunctionSpec: f.Spec}}
		f.Spec.Image, f.Spec.Replicas, f.Generation = "i:2", of(3), 4
	})
	if again := w.rollsOut(t.Context(), "k", f, store.Function{Revision: 7}, nil); again || !w.rolling["k"] {
		t.Errorf("it is tried again: %v", again)
	}
	f.Annotations[v1alpha1.RevisionAnnotation] = "8" // Another replica has deployed it.
	w.rollsOut(t.Context(), "k", f, store.Function{Revision: 8}, nil)
	if !slices.Equal(target.replicas, []uint64{3}) {
		t.Errorf("adopted are %v", target.replicas)
	}
	f.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Reason: reasonRolledBack, ObservedGeneration: 3}}
	if got := acceptedReason(f); got != "" {
		t.Errorf("the condition of an earlier spec counts: %s", got)
	}
	if f.Generation = 3; acceptedReason(f) != reasonRolledBack {
		t.Error("the condition of the present spec does not count")
	}
}
