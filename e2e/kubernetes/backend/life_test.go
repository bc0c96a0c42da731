package backend_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// One replica starts and stops an instance. The other sees the same.
func TestLife(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	a, b := r.backend(), r.backend()
	if n := r.one(a); n.Name != r.node || n.Free != (cluster.Resources{CPU: 8000, Memory: 8 << 30}) {
		t.Errorf("node %+v", n)
	}
	spec := r.start(a, 3000)
	in := a.await(spec.ID, cluster.Ready)
	if in.Network != "tcp" || !strings.HasSuffix(in.Address, ":8080") || in.ReadyAt.Before(in.StartedAt) {
		t.Errorf("ready %+v", in)
	}
	b.await(spec.ID, cluster.Ready)
	if n := r.one(b); n.Free.CPU != 5000 || n.Total.CPU != 8000 {
		t.Errorf("node %+v", n)
	}
	if list, err := b.Instances(t.Context()); err != nil || len(list) != 1 || list[0].InstanceSpec.Config != spec.Config {
		t.Errorf("the other sees %+v, %v", list, err)
	}
	pod := r.pod(spec.ID)
	if pod.Status.QOSClass != corev1.PodQOSGuaranteed || pod.OwnerReferences[0].UID != r.function.UID {
		t.Errorf("pod is %s, owned by %v", pod.Status.QOSClass, pod.OwnerReferences)
	}
	if usage, err := a.Usage(t.Context(), spec.ID); err != nil || usage != (cluster.Resources{}) {
		t.Errorf("usage without a metrics server: %+v, %v", usage, err)
	}
	stop(t, b, spec.ID)
	for _, x := range []*backend{a, b} {
		x.await(spec.ID, cluster.Exited)
	}
	if states, last := b.history(spec.ID); !equal(states, "starting ready stopping exited") || last.Reason != "stopped" {
		t.Errorf("told %v, %q", states, last.Reason)
	}
	if n := r.one(a); n.Free.CPU != 8000 {
		t.Errorf("node %+v", n)
	}
	stop(t, a, spec.ID) // Which does not exist any more.
	if _, err := a.Start(t.Context(), spec); err == nil {
		t.Error("an ID was used twice")
	}
}

func stop(t *testing.T, b *backend, id cluster.InstanceID) {
	t.Helper()
	ctx, cancel := contextFor(t, 5*time.Second)
	defer cancel()
	if err := b.Stop(ctx, id); err != nil {
		t.Fatal(err)
	}
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	first := r.backend()
	spec := r.start(first, 1000)
	first.await(spec.ID, cluster.Ready)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := r.backend()
	list, err := second.Instances(t.Context())
	if err != nil || len(list) != 1 || list[0].State != cluster.Ready || list[0].Address == "" || list[0].ReadyAt.IsZero() {
		t.Fatalf("found %+v, %v", list, err)
	}
	if _, err := first.Nodes(t.Context()); err == nil {
		t.Error("a closed backend lists nodes")
	}
	stop(t, second, spec.ID)
}

// As soon as it has an address, the backend asks an instance itself. It does not wait for a
// kubelet's probe.
func TestReadyByAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	b := r.backend()
	spec := r.start(b, 1000)
	r.say(spec.ID, func(s *corev1.PodStatus) {
		s.PodIP, s.PodIPs = "10.1.2.3", []corev1.PodIP{{IP: "10.1.2.3"}}
	})
	r.answers.Store(true)
	if in := b.await(spec.ID, cluster.Ready); in.Address != "10.1.2.3:8080" {
		t.Errorf("ready %+v", in)
	}
}

func TestDeletedByOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	b := r.backend()
	deleted, evicted, owned := r.start(b, 100), r.start(b, 100), r.start(b, 100)
	for _, s := range []cluster.InstanceSpec{deleted, evicted, owned} {
		b.await(s.ID, cluster.Ready)
	}
	if err := shared.client.CoreV1().Pods(r.namespace).Delete(t.Context(), string(deleted.ID), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if in := b.await(deleted.ID, cluster.Exited); in.Reason != "deleted" {
		t.Errorf("deleted: %q", in.Reason)
	}
	err := shared.client.CoreV1().Pods(r.namespace).EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: string(evicted.ID), Namespace: r.namespace}})
	if err != nil {
		t.Fatal(err)
	}
	if in := b.await(evicted.ID, cluster.Exited); !strings.HasPrefix(in.Reason, "evicted") {
		t.Errorf("evicted: %q", in.Reason)
	}
	if err := shared.functions.Functions(r.namespace).Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.await(owned.ID, cluster.Exited) // The garbage collector's work.
}

// A pod with the labels of an instance but an invalid spec is not an instance. Its share of
// the node counts as that of others.
func TestStrangePod(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	b := r.backend()
	manifest := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"odd","namespace":"` + r.namespace + `",
	  "labels":{"` + v1alpha1.ManagedByLabel + `":"faas-infer","` + v1alpha1.InstanceLabel + `":"odd"},
	  "annotations":{"` + v1alpha1.SpecAnnotation + `":"{\"id\":7}"}},
	  "spec":{"nodeName":"` + r.node + `","containers":[{"name":"c","image":"example.com/c","resources":{"requests":{"cpu":"1500m"}}}]}}`
	if _, err := shared.Kubectl(t.Context(), manifest, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	r.until("its share is others'", func() string {
		if n := r.one(b); n.Total.CPU != 6500 {
			return "not yet"
		}
		return ""
	})
	if list, err := b.Instances(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("instances %+v, %v", list, err)
	}
}
