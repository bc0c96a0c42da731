package backend_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// admits waits until the function's pods may go to its node, or may not because of a word.
func (r *rig) admits(b *backend, word string) {
	r.t.Helper()
	r.until("what admits its pods", func() string {
		names, why := b.Admitting("m."+r.namespace, 1, []string{r.node}, "")
		if takes := len(names) == 1; takes != (word == "") || !strings.Contains(why, word) {
			return fmt.Sprintf("%v, because %q", names, why)
		}
		return ""
	})
}

// refused starts an instance that the API server refuses with a word.
func (r *rig) refused(b *backend, word string) {
	r.t.Helper()
	_, err := b.Start(r.t.Context(), r.spec(1000))
	if refused := (*cluster.RefusedError)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), word) {
		r.t.Errorf("the start beyond a limit: %v", err)
	}
}

// A quota, a LimitRange, a taint that came later and a kubelet that rejects a pod are not the
// function's fault. The refusal is remembered until its cause changes.
func TestRefused(t *testing.T) {
	r := newRig(t, false)
	b := r.backend()
	cores := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
	}
	quotas := shared.client.CoreV1().ResourceQuotas(r.namespace)
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "cores"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("1500m")}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.until("the quota counts", func() string {
		q, err := quotas.Get(t.Context(), "cores", metav1.GetOptions{})
		if err != nil || q.Status.Hard == nil {
			return fmt.Sprint(q.Status, err)
		}
		return ""
	})
	first := r.start(b, 1000)
	r.refused(b, "exceeded quota: cores")
	r.admits(b, "exceeded quota: cores")
	ctx, cancel := contextFor(t, 0)
	cancel()
	if err := b.Stop(ctx, first.ID); err != nil {
		t.Error(err)
	}
	r.admits(b, "")
	if err := quotas.Delete(t.Context(), "cores", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}

	ranges := shared.client.CoreV1().LimitRanges(r.namespace)
	if _, err := ranges.Create(t.Context(), &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: cores("500m")}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.until("the LimitRange counts", func() string {
		id := r.spec(1000)
		if in, err := b.Start(t.Context(), id); err == nil {
			_ = b.Stop(ctx, in.ID)
			return "it does not"
		}
		return ""
	})
	r.refused(b, "maximum cpu usage per Container is 500m")
	if err := ranges.Delete(t.Context(), "small", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	r.admits(b, "")
	r.started += 10
	r.tainted(b)
	r.rejected(b)
}

// tainted starts an instance on a node that repels it. The scheduler says so.
func (r *rig) tainted(b *backend) {
	r.t.Helper()
	taint := func(effect string) {
		if out, err := shared.Kubectl(r.t.Context(), "", "taint", "node", r.node, "late=true:"+effect); err != nil {
			r.t.Fatal(out, err)
		}
	}
	taint("NoSchedule")
	spec := r.spec(1000)
	if _, err := b.Start(r.t.Context(), spec); err != nil {
		r.t.Fatal(err)
	}
	if in := b.await(spec.ID, cluster.Exited); !in.Blameless || !strings.Contains(in.Reason, "taint") {
		r.t.Errorf("%+v", in)
	}
	r.admits(b, "late")
	taint("NoSchedule-")
	r.admits(b, "")
}

// rejected has the kubelet reject a pod, and a pod marked to count it.
func (r *rig) rejected(b *backend) {
	r.t.Helper()
	spec := r.start(b, 1000)
	r.until("it is marked", func() string {
		if err := b.Recount(r.t.Context(), spec.Function, "17"); err != nil {
			return err.Error()
		}
		if pod := r.pod(spec.ID); pod == nil || pod.Annotations[v1alpha1.CountedAnnotation] != "17" {
			return fmt.Sprintf("%+v", pod)
		}
		return ""
	})
	r.say(spec.ID, func(s *corev1.PodStatus) {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, "TopologyAffinityError", "Pod was rejected: Resources cannot be allocated with Topology locality"
	})
	if in := b.await(spec.ID, cluster.Exited); !in.Blameless {
		r.t.Errorf("%+v", in)
	}
	names, why := b.Admitting(spec.Function, 1, []string{r.node, "another"}, "")
	if len(names) != 1 || names[0] != "another" || !strings.Contains(why, "node "+r.node+" (TopologyAffinityError") {
		r.t.Errorf("%v, because %q", names, why)
	}
	r.podIsGone(spec.ID)
}
