package objects

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// The published number rises at once and falls slowly: an evicted pod is missing until its
// replacement starts, and the number must not follow it down. A function without room for
// the replacement still wants it, but not one that the provider stopped. A number that stays
// lower is published.
func TestScale(t *testing.T) {
	type step struct {
		after time.Duration
		pods  int64
		short bool
		want  int64
		// stopped is how many pods the provider has stopped since it started.
		stopped int64
	}
	const second = time.Second
	for name, c := range map[string]struct {
		shown int64
		steps []step
	}{
		"rises at once":                   {0, []step{{0, 1, false, 1, 0}, {second, 5, false, 5, 0}}},
		"an evicted pod and its heir":     {5, []step{{0, 5, false, 5, 0}, {second, 4, false, 5, 0}, {2 * second, 5, false, 5, 0}, {20 * second, 5, false, 5, 0}}},
		"one after another":               {5, []step{{0, 4, false, 5, 0}, {8 * second, 5, false, 5, 0}, {second, 4, false, 5, 0}, {9 * second, 4, false, 5, 0}, {second, 4, false, 4, 0}}},
		"no room for the heir":            {5, []step{{0, 4, false, 5, 0}, {second, 4, true, 5, 0}, {time.Hour, 4, true, 5, 0}, {second, 4, false, 5, 0}, {11 * second, 4, false, 4, 0}}},
		"falls to the highest of a while": {5, []step{{0, 3, false, 5, 0}, {5 * second, 4, false, 5, 0}, {5 * second, 2, false, 4, 0}, {5 * second, 2, false, 4, 0}, {5 * second, 2, false, 2, 0}}},
		"to zero":                         {2, []step{{0, 0, false, 2, 0}, {10 * second, 0, false, 0, 0}}},
		"a new leader knows it":           {5, []step{{0, 4, false, 5, 0}}},
		"stopped while there is no room":  {0, []step{{0, 3, true, 3, 0}, {second, 2, true, 3, 1}, {10 * second, 2, true, 2, 1}, {time.Hour, 2, true, 2, 1}}},
		"one lost and one stopped":        {0, []step{{0, 5, false, 5, 7}, {second, 3, true, 5, 8}, {10 * second, 3, true, 4, 8}, {time.Hour, 3, true, 4, 8}, {second, 4, true, 4, 8}, {second, 3, true, 4, 8}, {time.Hour, 3, true, 4, 8}}},
		"one instead of another":          {2, []step{{0, 3, true, 3, 0}, {second, 2, true, 3, 1}, {10 * second, 2, true, 2, 1}, {second, 1, true, 2, 1}, {time.Hour, 1, true, 2, 1}}},
		"a controller counts anew":        {2, []step{{0, 2, false, 2, 9}, {second, 1, true, 2, 0}, {time.Hour, 1, true, 2, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := newScale(c.shown, 0), time.Unix(0, 0)
			for i, step := range c.steps {
				now = now.Add(step.after)
				if got := s.look(now, step.pods, step.stopped, step.short); got != step.want {
					t.Errorf("step %d: %d pods are published as %d, not %d", i, step.pods, got, step.want)
				}
			}
		})
	}
}

// scaleServer is an API server of functions that keeps what is patched, and a watcher that writes
// to it.
type scaleServer struct {
	*watcher
	t       *testing.T
	patches []string
	marks   []string
	// old: its definition of functions has no spec.instances.
	old bool
	at  time.Time
}

func newScaleServer(t *testing.T) *scaleServer {
	t.Helper()
	s := &scaleServer{t: t, at: time.Unix(1000, 0)}
	server := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(server.Close)
	typed, err := v1alpha1.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	s.watcher = &watcher{Objects: &Objects{typed: typed, log: zerolog.Nop(), now: func() time.Time { return s.at }}, scales: map[string]*published{}}
	s.Leading = func() bool { return false }
	s.Status = func(string) (provider.Status, bool) { return provider.Status{Replicas: 2, Pods: 4}, true }
	s.Recount = func(_ context.Context, name, mark string) error {
		s.marks = append(s.marks, name+" "+mark)
		return nil
	}
	return s
}

// serve answers a patch with the object that has its fields only.
func (s *scaleServer) serve(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	var f v1alpha1.Function
	if err := json.Unmarshal(text, &f); err != nil {
		s.t.Error(err)
	}
	var change struct{ Spec json.RawMessage }
	_ = json.Unmarshal(text, &change) // It was JSON just now.
	s.patches = append(s.patches, string(change.Spec))
	f.ResourceVersion = "8"
	if f.Name = "m"; s.old {
		f.Spec.Instances = nil
	}
	f.Namespace = "team"
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(&f); err != nil {
		s.t.Error(err)
	}
}

// counted is the function m.team with a number of pods, last published as noted.
func counted(instances int64, noted string, owners ...metav1.ManagedFieldsEntry) *v1alpha1.Function {
	f := &v1alpha1.Function{Spec: v1alpha1.FunctionSpec{Image: "i", Instances: &instances}}
	f.Name, f.Namespace, f.ResourceVersion, f.ManagedFields = "m", "team", "7", owners
	if noted != "" {
		f.Annotations = map[string]string{v1alpha1.InstancesAnnotation: noted}
	}
	return f
}

// A number that came with a manifest changes no replicas, and one that kubectl scale wrote does.
// Either is replaced by the number of pods in the same write, and budgets are calculated again.
func TestRestore(t *testing.T) {
	scaled := []metav1.ManagedFieldsEntry{{Manager: "kubectl", Subresource: "scale"}, {Manager: "argocd"}}
	applied := []metav1.ManagedFieldsEntry{{Manager: "kubectl"}, {Manager: "other", Subresource: "status"}}
	for name, c := range map[string]struct {
		f    *v1alpha1.Function
		want string
	}{
		"scaled":           {counted(3, "5", scaled...), `{"instances":5,"replicas":3}`},
		"scaled at first":  {counted(3, "", scaled...), `{"instances":3,"replicas":3}`},
		"applied":          {counted(3, "5", applied...), `{"instances":5}`},
		"applied at first": {counted(3, "", applied...), `{"instances":3,"replicas":3}`},
	} {
		s := newScaleServer(t)
		if _, err := withoutOwners(c.f); err != nil { // As the cache has it.
			t.Fatal(err)
		}
		if len(c.f.ManagedFields) > 1 {
			t.Errorf("%s: the cache keeps %v", name, c.f.ManagedFields)
		}
		if again := s.restore(t.Context(), c.f); again {
			t.Errorf("%s: it failed", name)
		}
		if len(s.patches) != 1 || s.patches[0] != c.want {
			t.Errorf("%s: wrote %v, not %s", name, s.patches, c.want)
		}
		if len(s.marks) != 1 || s.marks[0] != "m.team 8" {
			t.Errorf("%s: marked %v", name, s.marks)
		}
	}
}

// A replica that does not lead forgets what it has published: another one publishes meanwhile.
func TestNoLeaderForgetsScales(t *testing.T) {
	s := newScaleServer(t)
	if n, changed := s.count(counted(9, "9")); n != 9 || changed {
		t.Fatalf("published %d, %v", n, changed)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	s.report(ended) // One look.
	if n, changed := s.count(counted(5, "5")); n != 5 || changed {
		t.Errorf("after another leader's 5 it publishes %d, %v", n, changed)
	}
}

// A leader makes Kubernetes calculate budgets once more when it has led for settleTime, although
// the number is what it was: the leader before may have stopped after it had written it, or the
// controller manager may not have known functions yet. A failure is made good, and then it is quiet.
func TestBudgetsOnceMore(t *testing.T) {
	s := newScaleServer(t)
	f := counted(4, "4")
	s.functions = cache.NewSharedIndexInformer(&cache.ListWatch{}, f, 0, cache.Indexers{})
	if err := s.functions.GetIndexer().Add(f); err != nil {
		t.Fatal(err)
	}
	s.outcomes = map[string]outcome{"team/m": {}}
	s.Problem = func(string) string { return "" }
	_, f.Status, _ = s.statusOf(f, "") // Only the number is looked at here.
	mark, fails := s.Recount, false
	s.Recount = func(ctx context.Context, name, text string) error {
		if fails {
			return errors.New("the API server is away")
		}
		return mark(ctx, name, text)
	}
	pods := uint64(4)
	s.Status = func(string) (provider.Status, bool) { return provider.Status{Replicas: 2, Pods: pods}, true }
	looks := func(after time.Duration, marks, writes int) {
		t.Helper()
		s.at = s.at.Add(after)
		if err := s.reportAll(t.Context()); (err != nil) != fails {
			t.Errorf("it ends with %v", err)
		}
		if len(s.marks) != marks || len(s.patches) != writes {
			t.Errorf("marks are %v and writes %v", s.marks, s.patches)
		}
	}
	looks(0, 0, 0)
	looks(settleTime-time.Second, 0, 0)
	fails = true
	looks(time.Second, 0, 0)
	fails = false
	looks(time.Second, 1, 0)
	looks(time.Hour, 1, 0)
	// A changed number whose mark fails.
	pods, fails = 5, true
	looks(time.Second, 1, 1)
	fails = false
	instances := int64(5)
	f.Spec.Instances, f.Annotations[v1alpha1.InstancesAnnotation] = &instances, "5"
	looks(time.Second, 2, 1)
	looks(time.Hour, 2, 1)
	// Another leader, which finds the same version of the function.
	clear(s.scales)
	looks(time.Second, 2, 1)
	looks(settleTime, 3, 1)
	// A mark that fails at first is made at once, and once more in time.
	clear(s.scales)
	pods, fails = 6, true
	looks(time.Second, 3, 2)
	fails, instances, f.Annotations[v1alpha1.InstancesAnnotation] = false, 6, "6"
	looks(time.Second, 4, 2)
	looks(time.Second, 4, 2)
	looks(settleTime, 5, 2)
	looks(time.Hour, 5, 2)
	if slices.Sort(s.marks); len(slices.Compact(s.marks)) != 5 {
		t.Errorf("a pod may have one of the marks %v already", s.marks)
	}
}

// A definition of functions without the field gets no number for a while, and one that has been
// replaced meanwhile does.
func TestOldDefinition(t *testing.T) {
	s := newScaleServer(t)
	f := counted(2, "2")
	write := func() (changed bool) {
		n, changed := s.count(f)
		if changed {
			if err := s.writeCount(t.Context(), f, n); err != nil {
				t.Fatal(err)
			}
		}
		return changed
	}
	s.old = true
	if !write() || write() {
		t.Errorf("the old definition got %v", s.patches)
	}
	s.at = s.at.Add(noScalePause)
	if !write() || write() {
		t.Errorf("after a while it got %v", s.patches)
	}
	s.old, s.at = false, s.at.Add(noScalePause)
	if !write() || !write() {
		t.Errorf("the new definition got %v", s.patches)
	}
}
