package objects

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Users of the gateway cannot set what administrators decide, above all Pod Security levels.
func TestKeysOfKubernetes(t *testing.T) {
	for _, key := range []string{"pod-security.kubernetes.io/enforce", "scheduler.alpha.kubernetes.io/node-selector", "kubernetes.io/x", "admission.k8s.io/ignore"} {
		for _, n := range []store.Namespace{{Name: "team", Labels: map[string]string{key: "privileged"}}, {Name: "team", Annotations: map[string]string{key: "a=b"}}} {
			client := fake.NewClientset()
			var e *web.Error
			if err := NewNamespaceStore(client).PutNamespace(n); !errors.As(err, &e) || e.HTTPStatus() != http.StatusForbidden || !strings.Contains(err.Error(), key) {
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
