package objects

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/provider/store"
)

// A namespace that faas-cli makes gets its level, policies and quota; one of others gets nothing.
// What an administrator changes in it stays.
func TestNewNamespaces(t *testing.T) {
	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Annotations: map[string]string{NamespaceAnnotation: "1"}}}
	client := fake.NewClientset(theirs)
	s := NewNamespaceStore(client, NewNamespaces{PodSecurity: "baseline", NetworkPolicies: true, Provider: "serving", Quota: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}})
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		s.Informer.RunWithContext(ctx)
	}()
	defer func() { cancel(); <-ended }()
	put := func(name string, labels map[string]string) {
		t.Helper()
		if err := s.PutNamespace(store.Namespace{Name: name, Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	level := func(name string) string {
		t.Helper()
		n, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n.Labels["pod-security.kubernetes.io/enforce"]
	}
	has := func(name string) (found []string) {
		t.Helper()
		policies, err := client.NetworkingV1().NetworkPolicies(name).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range policies.Items {
			found = append(found, p.Name)
		}
		quotas, err := client.CoreV1().ResourceQuotas(name).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range quotas.Items {
			found = append(found, q.Name+" "+q.Spec.Hard.Pods().String())
		}
		slices.Sort(found)
		return found
	}
	put("made", map[string]string{"team": "a"})
	put("theirs", map[string]string{"team": "a"})
	if got := level("made"); got != "baseline" {
		t.Errorf("the level is %q", got)
	}
	if got := has("made"); !slices.Equal(got, []string{"faas-infer 10", functionsPolicy, membersPolicy, shadowsPolicy}) {
		t.Errorf("it has %q", got)
	}
	if got := has("theirs"); len(got) > 0 || level("theirs") != "" {
		t.Errorf("one of others has %q and the level %q", got, level("theirs"))
	}
	policy, err := client.NetworkingV1().NetworkPolicies("made").Get(t.Context(), functionsPolicy, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if from := policy.Spec.Ingress[0].From[0]; from.NamespaceSelector.MatchLabels[corev1.LabelMetadataName] != "serving" || len(from.PodSelector.MatchLabels) == 0 {
		t.Errorf("it admits %v", from)
	}
	// faas-cli writes back what it read, without the level.
	read, err := s.Namespace("made")
	if err != nil || !maps.Equal(read.Labels, map[string]string{"team": "a"}) {
		t.Errorf("it is shown as %v: %v", read, err)
	}
	changed, err := client.CoreV1().Namespaces().Get(t.Context(), "made", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	changed.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	if _, err := client.CoreV1().Namespaces().Update(t.Context(), changed, metav1.UpdateOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	quotas := client.CoreV1().ResourceQuotas("made")
	quota, err := quotas.Get(t.Context(), quotaName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quota.Spec.Hard[corev1.ResourcePods] = resource.MustParse("50")
	if _, err := quotas.Update(t.Context(), quota, metav1.UpdateOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	if err := client.NetworkingV1().NetworkPolicies("made").Delete(t.Context(), functionsPolicy, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	put("made", map[string]string{"team": "b"})
	if got := level("made"); got != "privileged" {
		t.Errorf("an administrator's level has become %q", got)
	}
	if got := has("made"); !slices.Equal(got, []string{"faas-infer 50", membersPolicy, shadowsPolicy}) {
		t.Errorf("an administrator's changes have become %q", got)
	}
}

// A namespace that could not be given all that a new one gets allows no functions. The next request
// completes it, and keeps what is there.
func TestHalfMadeNamespace(t *testing.T) {
	client := fake.NewClientset()
	fail := true
	client.PrependReactor("create", "resourcequotas", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fail, nil, apierrors.NewForbidden(corev1.Resource("resourcequotas"), quotaName, errors.New("no rule"))
	})
	s := NewNamespaceStore(client, NewNamespaces{NetworkPolicies: true, Quota: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}})
	n := store.Namespace{Name: "made", Labels: map[string]string{"team": "a"}}
	if err := s.PutNamespace(n); err == nil || !strings.Contains(err.Error(), "allows no functions until the request is repeated: its quota") {
		t.Errorf("without a quota: %v", err)
	}
	if ok, err := s.AllowedNow("made"); ok || err != nil {
		t.Errorf("without a quota it allows functions: %v, %v", ok, err)
	}
	fail = false
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		s.Informer.RunWithContext(ctx)
	}()
	defer func() { cancel(); <-ended }()
	if err := s.PutNamespace(n); err != nil {
		t.Errorf("again: %v", err)
	}
	if ok, err := s.AllowedNow("made"); !ok {
		t.Errorf("again it allows no functions: %v", err)
	}
	if got, err := s.Namespace("made"); err != nil || !maps.Equal(got.Labels, n.Labels) {
		t.Errorf("it has become %v: %v", got, err)
	}
	policies, err := client.NetworkingV1().NetworkPolicies("made").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(policies.Items) != 3 {
		t.Errorf("it has %v: %v", policies, err)
	}
}
