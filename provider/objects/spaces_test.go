package objects

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Users of the gateway cannot set what administrators decide, above all Pod Security levels.
func TestKeysOfKubernetes(t *testing.T) {
	for _, key := range []string{"pod-security.kubernetes.io/enforce", "scheduler.alpha.kubernetes.io/node-selector", "kubernetes.io/x", "admission.k8s.io/ignore"} {
		for _, n := range []store.Namespace{{Name: "team", Labels: map[string]string{key: "privileged"}}, {Name: "team", Annotations: map[string]string{key: "a=b"}}} {
			client := fake.NewClientset()
			var e *web.Error
			if err := NewNamespaceStore(client, NewNamespaces{}).PutNamespace(n); !errors.As(err, &e) || e.HTTPStatus() != http.StatusForbidden || !strings.Contains(err.Error(), key) {
				t.Errorf("%+v: %v", n, err)
			}
			if all, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) != 0 {
				t.Errorf("%+v: %v, %v", n, all.Items, err)
			}
		}
	}
	for key, want := range map[string]bool{"team": false, "example.com/team": false, "notkubernetes.io/x": false, "openfaas": false, "a.k8s.io/b": true} {
		if reserved(key) != want {
			t.Errorf("%s: %v", key, !want)
		}
	}
}

// An installation without the option manage-namespaces says so, and what to do instead. It says so
// to a dry run, before anything is deleted.
func TestNoRightToNamespaces(t *testing.T) {
	ours := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ours", Annotations: map[string]string{NamespaceAnnotation: "1"}, Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}}}
	theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Annotations: map[string]string{NamespaceAnnotation: "1"}}}
	client := fake.NewClientset(ours, theirs)
	why := "no rule"
	var dry []string
	for _, verb := range []string{"create", "delete", "patch"} {
		client.PrependReactor(verb, "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
			switch a := action.(type) {
			case clienttesting.DeleteActionImpl:
				dry = a.DeleteOptions.DryRun
			case clienttesting.PatchActionImpl:
				dry = a.PatchOptions.DryRun
			}
			return true, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "x", errors.New(why))
		})
	}
	s := NewNamespaceStore(client, NewNamespaces{})
	refused := func(err error, command string) {
		t.Helper()
		var e *web.Error
		if !errors.As(err, &e) || e.HTTPStatus() != http.StatusForbidden || !strings.Contains(err.Error(), "manage-namespaces") || !strings.Contains(err.Error(), command) {
			t.Errorf("%v, want 403 with the option and %q", err, command)
		}
	}
	for name, command := range map[string]string{"ours": "kubectl delete namespace ours", "theirs": "kubectl annotate namespace theirs openfaas-"} {
		refused(s.CheckDeleteNamespace(name), command)
		if !slices.Equal(dry, []string{metav1.DryRunAll}) {
			t.Errorf("%s: the check is no dry run: %q", name, dry)
		}
		refused(s.DeleteNamespace(name), command)
		if len(dry) != 0 {
			t.Errorf("%s: a dry run instead of deleting: %q", name, dry)
		}
	}
	refused(s.PutNamespace(store.Namespace{Name: "new"}), "kubectl annotate namespace new openfaas=1")
	refused(s.PutNamespace(store.Namespace{Name: "ours"}), "kubectl label or annotate namespace ours")
	why = "ValidatingAdmissionPolicy 'faas-infer-namespaces' denied request"
	if err := s.CheckDeleteNamespace("ours"); err == nil || strings.Contains(err.Error(), "manage-namespaces") {
		t.Errorf("a policy's refusal: %v", err)
	}
	if err := s.CheckDeleteNamespace("none"); !errors.Is(err, store.ErrAbsent) {
		t.Errorf("an absent one: %v", err)
	}
}
