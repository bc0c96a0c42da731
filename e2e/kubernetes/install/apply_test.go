package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/provider/objects"
	"github.com/faas-infer/faas-infer/provider/store"
)

const namespaces = `{apiVersion: v1, kind: Namespace, metadata: {name: openfaas}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: openfaas-fn}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: faas-infer-node}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: faas-infer-copies}}
`

const account = "system:serviceaccount:openfaas:faas-infer"

// mine are the provider's rights beyond those that it requires. The provider works without
// them if a cluster has no such resources.
var mine = []client.Need{
	{Scope: client.Cluster, Group: "metrics.k8s.io", Resource: "pods", Verbs: []string{"get", "list"}},
	{Scope: client.Provider, Group: "openfaas.com", Resource: "profiles", Verbs: []string{"get"}},
}

func connect(t *testing.T, edit func(*rest.Config)) *kubernetes.Clientset {
	t.Helper()
	config := cluster.Config()
	if edit != nil {
		edit(config)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func await(t *testing.T, what string, done func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		err := done(ctx)
		if err == nil {
			tick.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// warnings collects the API server's warnings.
type warnings struct{ all []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.all = append(w.all, text) }

// A real API server accepts all objects. It creates the pods of everything that is
// installed; otherwise the Pod Security Standard of their namespaces would have refused
// them.
func TestApply(t *testing.T) {
	text := kustomized(t, options, []string{"node-agent.yaml"})
	// What is in a namespace cannot be tried before there is one.
	kubectl(t, namespaces, "apply", "--server-side", "-f", "-")
	kubectl(t, text, "apply", "--server-side", "--dry-run=server", "-f", "-")
	if err := cluster.AddNodes(t.Context(), 2, "16", "64Gi", nil); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "", "apply", "--server-side", "-f", "../../../yaml/crd.yaml")
	kubectl(t, text, "apply", "--server-side", "-f", "-")
	// Again, and nothing changes, but for what controllers write between kubectl's looks.
	await(t, "applied a second time", func(ctx context.Context) error {
		out, err := cluster.Kubectl(ctx, text, "diff", "--server-side", "-f", "-")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	kubectl(t, "", "-n", "openfaas", "create", "secret", "generic", "basic-auth", "--from-literal=basic-auth-user=a", "--from-literal=basic-auth-password=b")
	kubectl(t, "", "-n", "openfaas", "create", "secret", "generic", "nats-auth", "--from-literal=username=provider", "--from-literal=password=a", "--from-literal=gateway-username=gateway", "--from-literal=gateway-password=b")
	c := connect(t, nil)
	for name, want := range map[string]int{"app.kubernetes.io/name=faas-infer": 2, "app=gateway": 1, "app=nats": 1, "app=prometheus": 1} {
		await(t, "pods of "+name, func(ctx context.Context) error {
			pods, err := c.CoreV1().Pods("openfaas").List(ctx, metav1.ListOptions{LabelSelector: name})
			if err == nil && len(pods.Items) != want {
				events, _ := cluster.Kubectl(ctx, "", "-n", "openfaas", "get", "events")
				err = fmt.Errorf("there are %d: %s", len(pods.Items), events)
			}
			return err
		})
	}
	await(t, "the provider is available", func(ctx context.Context) error {
		d, err := c.AppsV1().Deployments("openfaas").Get(ctx, "faas-infer", metav1.GetOptions{})
		if err == nil && d.Status.AvailableReplicas != 2 {
			err = fmt.Errorf("%d are", d.Status.AvailableReplicas)
		}
		return err
	})
	await(t, "pods that keep the nodes' copies", func(ctx context.Context) error {
		d, err := c.AppsV1().DaemonSets("faas-infer-copies").Get(ctx, "faas-infer-copies", metav1.GetOptions{})
		if err == nil && (d.Status.NumberAvailable != 2 || d.Status.DesiredNumberScheduled != 2) {
			err = fmt.Errorf("%+v", d.Status)
		}
		return err
	})
	// Prometheus asks every address of a Service without one of its own.
	for name, want := range map[string]int{"faas-infer": 2, "gateway": 2, "nats": 2, "prometheus": 2, "faas-infer-replicas": 1, "gateway-replicas": 1} {
		s, err := c.CoreV1().Services("openfaas").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(s.Spec.IPFamilies) != want {
			t.Errorf("in a dual-stack cluster service %s has addresses of %v, %v", name, s.Spec.IPFamilies, err)
		}
	}
	t.Run("restricted", restricted)
	t.Run("namespaces", ofFunctions)
	t.Run("new namespaces", newSpaces)
	t.Run("rights", rights)
}

// ofFunctions checks that the provider can make, change and delete namespaces of functions, and
// no others.
func ofFunctions(t *testing.T) {
	provider := connect(t, func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}}
	})
	spaces := objects.NewNamespaceStore(provider, objects.NewNamespaces{PodSecurity: "restricted", NetworkPolicies: true, Provider: "openfaas"})
	go spaces.Informer.RunWithContext(t.Context())
	kubectl(t, "", "create", "namespace", "adopted")
	kubectl(t, "", "annotate", "namespace", "adopted", "openfaas=1")
	kubectl(t, "", "create", "namespace", "foreign")
	change := func(name, patch string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := provider.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
	}
	remove := func(name string) func(context.Context) error {
		return func(ctx context.Context) error {
			return provider.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		}
	}
	for _, c := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"annotating one of others", change("foreign", `{"metadata":{"annotations":{"openfaas":"1"}}}`)},
		{"completing one of others", change("foreign", `{"metadata":{"annotations":{"openfaas":"pending"}}}`)},
		{"deleting one of others", remove("foreign")},
		{"deleting one that it has not made", remove("adopted")},
		{"claiming one that it has not made", change("adopted", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"faas-infer"}}}`)},
		{"changing a level", change("openfaas-fn", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline"}}}`)},
		{"removing a level", change("openfaas-fn", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`)},
		{"making one that is not for functions", func(ctx context.Context) error {
			_, err := provider.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "odd"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}},
	} {
		await(t, c.what, func(context.Context) error { // The policy holds a moment after it was made.
			if err := c.do(t.Context()); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "faas-infer-namespaces") {
				return fmt.Errorf("the API server says %v", err)
			}
			return nil
		})
	}
	for what, err := range map[string]error{
		"make":          spaces.PutNamespace(store.Namespace{Name: "made", Labels: map[string]string{"team": "a"}}),
		"label":         spaces.PutNamespace(store.Namespace{Name: "adopted", Labels: map[string]string{"team": "b"}}),
		"label default": spaces.PutNamespace(store.Namespace{Name: "openfaas-fn", Labels: map[string]string{"team": "c"}}),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, name := range []string{"made", "adopted"} {
		if err := spaces.CheckDeleteNamespace(name); err != nil {
			t.Errorf("may not delete %s: %v", name, err)
		}
		if !spaces.Allowed(name) {
			t.Errorf("the check has deleted %s", name)
		}
		if err := spaces.DeleteNamespace(name); err != nil {
			t.Errorf("delete %s: %v", name, err)
		}
	}
}

// restricted checks that the provider's namespace allows no privileged pod.
func restricted(t *testing.T) {
	_, err := connect(t, nil).CoreV1().Pods("openfaas").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "root"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "restricted") {
		t.Errorf("a pod as root: %v", err)
	}
	w := new(warnings)
	c := connect(t, func(config *rest.Config) { config.WarningHandler = w })
	for _, name := range []string{"faas-infer", "gateway", "prometheus"} {
		deployments := c.AppsV1().Deployments("openfaas")
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // Its controller writes to it, too.
			d, err := deployments.Get(t.Context(), name, metav1.GetOptions{})
			if err == nil {
				_, err = deployments.Update(t.Context(), d, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	if len(w.all) > 0 {
		t.Errorf("the API server warns: %q", w.all)
	}
}

// rights checks that the provider has the rights that it needs and no others.
func rights(t *testing.T) {
	provider := connect(t, func(c *rest.Config) {
		c.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}}
	})
	needs := slices.Concat(client.Needs(), client.NamespaceNeeds(), client.ClaimNeeds(), mine)
	await(t, "the provider's rights", func(ctx context.Context) error {
		missing, err := client.CheckAccess(ctx, provider, needs, "openfaas", []string{"openfaas-fn"})
		if err == nil && len(missing) > 0 {
			err = fmt.Errorf("%v", missing)
		}
		return err
	})
	needed := map[string]bool{}
	for _, n := range needs {
		for _, verb := range n.Verbs {
			needed[fmt.Sprintf("%s %s %s", verb, n.Group, n.Resource)] = true
		}
	}
	// The roles that the installation binds to the provider.
	for _, role := range []string{"clusterrole/faas-infer", "clusterrole/faas-infer-functions", "clusterrole/faas-infer-namespaces", "role/faas-infer"} {
		out := kubectl(t, "", "-n", "openfaas", "get", role, "-o", `jsonpath={range .rules[*]}{range .verbs[*]}{@}{" "}{end}|{.apiGroups[0]}|{range .resources[*]}{@}{" "}{end}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			part := strings.Split(strings.TrimSpace(line), "|")
			for _, verb := range strings.Fields(part[0]) {
				for _, resource := range strings.Fields(part[2]) {
					if right := fmt.Sprintf("%s %s %s", verb, part[1], resource); !needed[right] {
						t.Errorf("%s: nobody needs %s", role, right)
					}
				}
			}
		}
	}
	for _, not := range []client.Need{
		{Scope: client.Functions, Resource: "secrets", Verbs: []string{"get", "list"}},
		{Scope: client.Functions, Resource: "pods", Verbs: []string{"create", "delete"}},
		{Scope: client.Cluster, Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings", Verbs: []string{"create", "bind"}},
	} {
		kubectl(t, "", "delete", "clusterrolebinding", "faas-infer-functions", "--ignore-not-found")
		await(t, "what the option allowed is forbidden again", func(ctx context.Context) error {
			left, err := client.CheckAccess(ctx, provider, []client.Need{not}, "openfaas", []string{"kube-system"})
			if err == nil && len(left) != len(not.Verbs) {
				err = fmt.Errorf("in kube-system the provider may %s %s, but for %v", strings.Join(not.Verbs, " or "), not.Resource, left)
			}
			return err
		})
	}
}
