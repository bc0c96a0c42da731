package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/provider/objects"
	"github.com/faas-infer/faas-infer/provider/store"
)

// newSpaces checks that the provider's rights suffice for what a namespace gets that faas-cli makes,
// and that they go no further: no other level, and no policy in a namespace of others.
func newSpaces(t *testing.T) {
	provider := connect(t, func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}}
	})
	fresh := objects.NewNamespaces{PodSecurity: "restricted", NetworkPolicies: true, Provider: "openfaas"}
	spaces := objects.NewNamespaceStore(provider, fresh)
	go spaces.Informer.RunWithContext(t.Context())
	await(t, "a new namespace", func(context.Context) error { return spaces.PutNamespace(store.Namespace{Name: "furnished"}) })
	if got := kubectl(t, "", "-n", "furnished", "get", "networkpolicies", "-o", "name"); !strings.Contains(got, "faas-infer-functions") || !strings.Contains(got, "faas-infer-members") || !strings.Contains(got, "faas-infer-shadows") {
		t.Errorf("it has %s", got)
	}
	if got := kubectl(t, "", "get", "namespace", "furnished", "-o", `jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}`); got != "restricted" {
		t.Errorf("its level is %q", got)
	}
	if err := spaces.PutNamespace(store.Namespace{Name: "furnished", Labels: map[string]string{"team": "a"}}); err != nil {
		t.Errorf("it cannot be changed: %v", err)
	}
	fresh.PodSecurity = "privileged"
	other := objects.NewNamespaceStore(provider, fresh)
	if err := other.PutNamespace(store.Namespace{Name: "loose"}); err == nil || !strings.Contains(err.Error(), "Pod Security") {
		t.Errorf("with another level: %v", err)
	}
	kubectl(t, "", "create", "namespace", "unrelated")
	for namespace, name := range map[string]string{"unrelated": "faas-infer-functions", "furnished": "anything"} {
		await(t, "a policy "+name+" in "+namespace+" is refused", func(ctx context.Context) error {
			_, err := provider.NetworkingV1().NetworkPolicies(namespace).Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "faas-infer-new-namespaces") {
				return fmt.Errorf("the API server says %w", err)
			}
			return nil
		})
	}
	kubectl(t, "", "delete", "namespace", "furnished", "unrelated", "--wait=false")
}
