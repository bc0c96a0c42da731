package migrate

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

const ns = "openfaas-fn"

// site is a mover with API servers in memory, and what it reports.
type site struct {
	*Mover
	t        *testing.T
	core     *fake.Clientset
	dynamic  *dynamicfake.FakeDynamicClient
	mu       sync.Mutex
	reported []string
}

func newSite(t *testing.T, objects ...runtime.Object) *site {
	t.Helper()
	d := deployment(t)
	s := &site{t: t, core: fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, d)}
	s.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.Resource: "FunctionList", {Group: "openfaas.com", Version: "v1", Resource: "functions"}: "FunctionList"}, objects...)
	s.Mover = &Mover{Client: s.core, Dynamic: s.dynamic, Patience: time.Minute, Report: func(step Step, err error) {
		what := step.Name + ": " + string(step.Action)
		if err != nil {
			what += ": " + err.Error()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reported = append(s.reported, what)
	}}
	return s
}

// deployment returns faas-netes' Deployment of figlet.
func (s *site) deployment() *appsv1.Deployment {
	s.t.Helper()
	d, err := s.core.AppsV1().Deployments(ns).Get(s.t.Context(), "figlet", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// function returns the Function object of figlet, nil if there is none.
func (s *site) function() *v1alpha1.Function {
	s.t.Helper()
	u, err := s.dynamic.Resource(v1alpha1.Resource).Namespace(ns).Get(s.t.Context(), "figlet", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	f, err := function(u)
	if err != nil {
		s.t.Fatal(err)
	}
	return f
}

// provide writes a status as the provider would.
func (s *site) provide(accepted, ready metav1.ConditionStatus, message string) {
	s.t.Helper()
	f := s.function()
	f.Status = v1alpha1.FunctionStatus{ObservedGeneration: f.Generation, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionAccepted, Status: accepted, Message: message}, {Type: v1alpha1.ConditionReady, Status: ready, Message: message}}}
	u, err := written(f)
	if err != nil {
		s.t.Fatal(err)
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&f.Status)
	if err != nil {
		s.t.Fatal(err)
	}
	u.Object["status"] = status
	if _, err := s.dynamic.Resource(v1alpha1.Resource).Namespace(ns).Update(s.t.Context(), u, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// available writes the Deployment's status as its controller would.
func (s *site) available(n int32) {
	s.t.Helper()
	d := s.deployment()
	d.Status.AvailableReplicas, d.Status.ObservedGeneration = n, d.Generation
	if _, err := s.core.AppsV1().Deployments(ns).UpdateStatus(s.t.Context(), d, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// begin makes a plan and carries it out in the background. wait returns how many steps failed.
func (s *site) begin(plan func(State, Choices) []Step) (wait func() int) {
	s.t.Helper()
	state, err := s.Look(s.t.Context(), ns)
	if err != nil {
		s.t.Fatal(err)
	}
	failed, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		failed = s.Run(s.t.Context(), plan(state, Choices{}))
	}()
	return func() int {
		<-done
		return failed
	}
}

// The Deployment serves until the function is ready. Then it is scaled to 0 and marked. An undoing
// deletes the function only when the Deployment's pods are available. Both may be repeated.
func TestImportAndUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		wait := s.begin(Plan)
		time.Sleep(10 * time.Second)
		if d, f := s.deployment(), s.function(); *d.Spec.Replicas != 2 || f == nil || f.Spec.Image != image || *f.Spec.Replicas != 2 {
			t.Fatalf("before it is ready: %d pods, function %+v", *d.Spec.Replicas, f)
		}
		s.provide(metav1.ConditionTrue, metav1.ConditionFalse, "0 of 2 instances are ready")
		time.Sleep(10 * time.Second)
		if d := s.deployment(); *d.Spec.Replicas != 2 {
			t.Fatal("it is scaled down and the function is not ready")
		}
		s.provide(metav1.ConditionTrue, metav1.ConditionTrue, "")
		if failed := wait(); failed > 0 {
			t.Fatal(s.reported)
		}
		if d := s.deployment(); *d.Spec.Replicas != 0 || d.Labels[RetiredLabel] != "2" {
			t.Errorf("%d pods, labels %v", *d.Spec.Replicas, d.Labels)
		}
		if failed := s.begin(Plan)(); failed > 0 || s.deployment().Labels[RetiredLabel] != "2" {
			t.Errorf("again: %q", s.reported)
		}
		wait = s.begin(PlanUndo)
		time.Sleep(10 * time.Second)
		if *s.deployment().Spec.Replicas != 2 || s.function() == nil {
			t.Fatal("the function goes before the Deployment serves")
		}
		s.available(2)
		if failed := wait(); failed > 0 {
			t.Fatal(s.reported)
		}
		if d := s.deployment(); *d.Spec.Replicas != 2 || d.Labels[RetiredLabel] != "" || s.function() != nil {
			t.Errorf("%d pods, labels %v, function %v", *d.Spec.Replicas, d.Labels, s.function())
		}
		if failed := s.begin(PlanUndo)(); failed > 0 {
			t.Error(s.reported)
		}
		if want := []string{"figlet: create", "figlet: keep", "figlet: delete"}; !slices.Equal(s.reported, want) {
			t.Errorf("%q", s.reported)
		}
	})
}

// addresses makes the Service of figlet have the addresses of pods, and lets no others exist.
func (s *site) addresses(pods ...string) {
	s.t.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "figlet-1", Namespace: ns, Labels: map[string]string{discoveryv1.LabelServiceName: "figlet"}},
	}
	for _, name := range pods {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name}})
	}
	if err := s.core.Tracker().Update(discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), slice, ns); err != nil {
		s.t.Fatal(err)
	}
}

// No pod that serves goes before the Service has the addresses of those that take over, which are ready earlier.
func TestServicesKeepAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		ready := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pod := func(name string, by map[string]string, conditions []corev1.PodCondition) *corev1.Pod {
			by[v1alpha1.FunctionLabel] = "figlet"
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: by}, Status: corev1.PodStatus{Conditions: conditions},
			}
		}
		ours := map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}
		for _, o := range []runtime.Object{
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "figlet", Namespace: ns},
				Spec:       corev1.ServiceSpec{Selector: map[string]string{v1alpha1.FunctionLabel: "figlet"}},
			},
			&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "figlet-1", Namespace: ns}},
			pod("theirs", map[string]string{}, ready), pod("starting", map[string]string{}, nil), pod("ours", ours, ready),
		} {
			if err := s.core.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
		s.addresses("theirs")
		wait := s.begin(Plan)
		synctest.Wait()
		s.provide(metav1.ConditionTrue, metav1.ConditionTrue, "")
		time.Sleep(10 * time.Second)
		if *s.deployment().Spec.Replicas != 2 {
			t.Fatal("the Deployment goes before the Service has the function's address")
		}
		s.addresses("theirs", "ours")
		if failed := wait(); failed > 0 || *s.deployment().Spec.Replicas != 0 {
			t.Fatal(s.reported)
		}
		s.addresses("ours")
		wait = s.begin(PlanUndo)
		synctest.Wait()
		s.available(2)
		time.Sleep(10 * time.Second)
		if s.function() == nil {
			t.Fatal("the function goes before the Service has the Deployment's address")
		}
		unready := pod("theirs", map[string]string{}, nil)
		if err := s.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), unready, ns); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if s.function() == nil {
			t.Fatal("the function goes while the Deployment's pod is not ready")
		}
		s.addresses("ours", "theirs")
		if failed := wait(); failed > 0 || s.function() != nil {
			t.Fatal(s.reported)
		}
		s.addresses("theirs")
		if failed := s.begin(Plan)(); failed != 1 || !strings.Contains(s.reported[2], "no provider") {
			t.Error(s.reported)
		}
	})
}

// A function that does not become ready leaves the Deployment as it is, and the reason is said.
func TestImportThatFails(t *testing.T) {
	for why, provide := range map[string]func(*site){
		"no provider of faas-infer has looked": func(*site) {},
		"the provider does not accept it: bad": func(s *site) { s.provide(metav1.ConditionFalse, metav1.ConditionFalse, "bad") },
		"0 of 2 ready; faas-netes still":       func(s *site) { s.provide(metav1.ConditionTrue, metav1.ConditionFalse, "0 of 2 ready") },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t)
			wait := s.begin(Plan)
			synctest.Wait()
			provide(s)
			if failed := wait(); failed != 1 || len(s.reported) != 1 || !strings.Contains(s.reported[0], why) {
				t.Errorf("%d failed: %q, want %q", failed, s.reported, why)
			}
			if d := s.deployment(); *d.Spec.Replicas != 2 || d.Labels[RetiredLabel] != "" {
				t.Error("the Deployment has been changed")
			}
		})
	}
}

// A replaced function gets its own spec back.
func TestReplaceAndRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, err := written(&v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "figlet", Namespace: ns, UID: "f1"}, Spec: v1alpha1.FunctionSpec{Image: "before"}})
		if err != nil {
			t.Fatal(err)
		}
		s := newSite(t, u)
		overwrite := func(state State, _ Choices) []Step { return Plan(state, Choices{Overwrite: true}) }
		if failed := s.begin(Plan)(); failed != 1 || s.function().Spec.Image != "before" {
			t.Fatal(s.reported)
		}
		for range 2 { // The second replaces what the first one wrote and somebody has changed.
			wait := s.begin(overwrite)
			synctest.Wait()
			s.provide(metav1.ConditionTrue, metav1.ConditionTrue, "")
			if failed := wait(); failed > 0 || s.function().Spec.Image != image {
				t.Fatal(s.reported)
			}
			f := s.function()
			f.Spec.Image = "newer"
			u, _ := written(f)
			if _, err := s.dynamic.Resource(v1alpha1.Resource).Namespace(ns).Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if failed := s.begin(PlanUndo)(); failed != 1 || !strings.Contains(s.reported[3], "changed since") {
			t.Fatal(s.reported)
		}
		s.available(2)
		if failed := s.begin(func(state State, _ Choices) []Step { return PlanUndo(state, Choices{Overwrite: true}) })(); failed > 0 {
			t.Fatal(s.reported)
		}
		if f := s.function(); f.Spec.Image != "before" || f.Annotations[ImportedAnnotation] != "" || *s.deployment().Spec.Replicas != 2 {
			t.Errorf("%+v", f)
		}
	})
}

// edit changes the Function object of figlet as somebody else would, while a step waits or within one
// of its requests: it goes past the client, which is locked then.
func (s *site) edit(change func(f *v1alpha1.Function)) {
	s.t.Helper()
	var f *v1alpha1.Function
	found, err := s.dynamic.Tracker().Get(v1alpha1.Resource, ns, "figlet")
	if err == nil {
		f, err = function(found.(*unstructured.Unstructured))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	change(f)
	f.Generation++
	u, err := written(f)
	if err == nil {
		err = s.dynamic.Tracker().Update(v1alpha1.Resource, u, ns)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// loaded is what the provider writes as load changes.
func loaded(pods int64) func(f *v1alpha1.Function) {
	return func(f *v1alpha1.Function) {
		f.Spec.Instances = &pods
		if f.Annotations == nil {
			f.Annotations = map[string]string{}
		}
		f.Annotations[v1alpha1.InstancesAnnotation] = strconv.FormatInt(pods, 10)
	}
}

// The number of instances is the present load's: neither an import nor its undoing writes an earlier
// one, which the provider would take for one that somebody has set. It stops none of them either.
func TestLoadDuringImportAndUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, err := written(&v1alpha1.Function{ObjectMeta: metav1.ObjectMeta{Name: "figlet", Namespace: ns, UID: "f1"}, Spec: v1alpha1.FunctionSpec{Image: "before"}})
		if err != nil {
			t.Fatal(err)
		}
		s := newSite(t, u)
		s.edit(loaded(20))
		check := func(when string, want int64) {
			t.Helper()
			if f := s.function(); f.Counted() != want {
				t.Errorf("%s: the provider counted %d, spec %+v, annotations %v", when, f.Counted(), f.Spec, f.Annotations)
			}
		}
		wait := s.begin(func(state State, _ Choices) []Step {
			s.edit(loaded(19)) // Between the plan and its first step.
			return Plan(state, Choices{Overwrite: true})
		})
		synctest.Wait()
		check("replaced", 19)
		if m, ok := readMark(s.function()); !ok || m.Before == nil || m.Before.Image != "before" || m.Before.Instances != nil {
			t.Errorf("the mark is %+v", m)
		}
		s.provide(metav1.ConditionTrue, metav1.ConditionTrue, "")
		if failed := wait(); failed > 0 {
			t.Fatal(s.reported)
		}
		// An import of an earlier version has noted the number.
		s.edit(func(f *v1alpha1.Function) {
			m, _ := readMark(f)
			m.Before.Instances = new(int64)
			f.Annotations[ImportedAnnotation] = m.String()
		})
		wait = s.begin(PlanUndo)
		synctest.Wait()
		s.edit(loaded(2))
		s.available(2)
		if failed := wait(); failed > 0 {
			t.Fatal(s.reported)
		}
		check("restored", 2)
		if f := s.function(); f.Spec.Image != "before" {
			t.Errorf("%+v", f.Spec)
		}
	})
}

// What somebody deploys while an undoing waits is not deleted, nor is a function that somebody changes
// in the moment of its deletion.
func TestUndoMeetsChanges(t *testing.T) {
	newer := func(f *v1alpha1.Function) { f.Spec.Image = "newer" }
	for what, test := range map[string]struct {
		waiting, deleting func(f *v1alpha1.Function)
		stays             bool
	}{
		"a deployment while it waits":   {newer, nil, true},
		"another object":                {func(f *v1alpha1.Function) { f.UID = "f2" }, nil, true},
		"a mark that is gone":           {func(f *v1alpha1.Function) { delete(f.Annotations, ImportedAnnotation) }, nil, true},
		"a deployment while it deletes": {nil, newer, true},
		"load while it waits":           {loaded(7), nil, false},
		"load while it deletes":         {nil, loaded(7), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t)
			wait := s.begin(Plan)
			synctest.Wait()
			s.provide(metav1.ConditionTrue, metav1.ConditionTrue, "")
			if failed := wait(); failed > 0 {
				t.Fatal(s.reported)
			}
			s.edit(func(f *v1alpha1.Function) { f.ResourceVersion = "41" })
			s.dynamic.PrependReactor("delete", "functions", func(a clienttesting.Action) (bool, runtime.Object, error) {
				p := a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions
				if p == nil || p.UID == nil || p.ResourceVersion == nil {
					t.Errorf("%s: deleted with the preconditions %+v", what, p)
					return false, nil, nil
				}
				if test.deleting != nil {
					s.edit(test.deleting)
					test.deleting = nil
					return true, nil, apierrors.NewConflict(v1alpha1.Resource.GroupResource(), "figlet", errors.New("modified"))
				}
				return false, nil, nil
			})
			wait = s.begin(PlanUndo)
			synctest.Wait()
			if test.waiting != nil {
				s.edit(test.waiting)
			}
			s.available(2)
			failed := wait()
			if stays := s.function() != nil; stays != test.stays || (failed > 0) != test.stays {
				t.Errorf("%s: the function stays: %v; %q", what, stays, s.reported)
			}
			if test.stays && !strings.Contains(s.reported[1], "somebody has changed the function meanwhile") {
				t.Errorf("%s: %q", what, s.reported)
			}
		})
	}
}

// An undoing waits for the pods also after an import that kept the Deployment running.
func TestUndoKeptRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		wait := s.begin(func(state State, _ Choices) []Step { return Plan(state, Choices{KeepRunning: true}) })
		synctest.Wait()
		s.provide(metav1.ConditionTrue, metav1.ConditionTrue, "")
		if failed := wait(); failed > 0 {
			t.Fatal(s.reported)
		}
		if failed := s.begin(PlanUndo)(); failed != 1 || s.function() == nil || !strings.Contains(s.reported[1], "Deployment has 0 of 2 pods") {
			t.Errorf("no pod is available, and %q, %v", s.reported, s.function())
		}
		wait = s.begin(PlanUndo)
		synctest.Wait()
		d := s.deployment() // faas-netes scales it by load.
		one := int32(1)
		d.Spec.Replicas = &one
		if _, err := s.core.AppsV1().Deployments(ns).Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.available(1)
		if failed := wait(); failed > 0 || s.function() != nil {
			t.Error(s.reported)
		}
	})
}

// The operator's object describes the function, and its Deployment serves it.
func TestObjectAndDeployment(t *testing.T) {
	s := newSite(t, anObject(t, strings.NewReplacer("nodeinfo-object", "figlet", "name: nodeinfo", "name: figlet").Replace(nodeinfo)))
	state, err := s.Look(t.Context(), ns)
	if err != nil || len(state.Origins) != 1 {
		t.Fatal(state.Origins, err)
	}
	if o := state.Origins[0]; o.Source != FromObject || o.Deployment == nil || o.Spec.Process != "node main.js" {
		t.Errorf("%+v", o)
	}
}

func TestLookSaysWhatIsMissing(t *testing.T) {
	s := newSite(t)
	if _, err := s.Look(t.Context(), "nowhere"); err == nil || !strings.Contains(err.Error(), `no namespace "nowhere"`) {
		t.Error(err)
	}
	s.core.PrependReactor("list", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	if _, err := s.Look(t.Context(), ns); err == nil || !strings.Contains(err.Error(), "Deployments of namespace openfaas-fn cannot be listed: forbidden") {
		t.Error(err)
	}
	for _, review := range []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"} { // Nothing is allowed.
		s.core.PrependReactor("create", review, func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, a.(clienttesting.CreateAction).GetObject(), nil
		})
	}
	if err := s.Allowed(t.Context(), []string{ns}); err == nil || !strings.Contains(err.Error(), "create functions.faas-infer.dev in namespace openfaas-fn") {
		t.Error(err)
	}
}
