package install

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// Helm installs the chart, upgrades it and removes it, except for the objects whose removal
// would delete all functions.
func TestHelm(t *testing.T) {
	name := program(t) // Built, where nobody has used it yet.
	// A cluster is started, and four times something is waited for.
	ctx, cancel := context.WithTimeout(t.Context(), 8*patience)
	defer cancel()
	other, err := testcluster.Start(ctx, testcluster.Options{Kwok: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := other.AddNodes(ctx, 2, "16", "64Gi", nil); err != nil {
		t.Fatal(err)
	}
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := other.Kubectl(ctx, "", args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out)
	}
	helm := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(ctx, name, append(args, "--namespace", "openfaas", "--kubeconfig", other.Kubeconfig(), "--wait", "--timeout", patience.String())...)
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		c.Env = append(c.Environ(), "HELM_CACHE_HOME="+other.Dir(), "HELM_CONFIG_HOME="+other.Dir(), "HELM_DATA_HOME="+other.Dir())
		if err := c.Run(); err != nil {
			t.Fatalf("helm %s: %v: %s", args[0], err, out.String())
		}
	}
	chart := filepath.Join(root, "yaml", "chart", "faas-infer")
	kubectl("create", "namespace", "openfaas")
	helm("install", "faas-infer", chart)
	kubectl("create", "-n", "openfaas-fn", "-f", filepath.Join("testdata", "function.yaml"))
	helm("upgrade", "faas-infer", chart, "--set", "replicas=3,gateway.enabled=true")
	// Helm asks the ReplicaSets, and the Deployments say so a moment later.
	await(t, "upgraded", func(context.Context) error {
		got := kubectl("-n", "openfaas", "get", "deployments", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.readyReplicas} {end}`)
		if got != "faas-infer=3 gateway=1" {
			return fmt.Errorf("there is %s", got)
		}
		return nil
	})
	helm("uninstall", "faas-infer")
	for _, c := range []struct{ args, want string }{
		{"-n openfaas get deployments,serviceaccounts,roles -l app.kubernetes.io/part-of=faas-infer -o name", ""},
		{"get clusterroles -l app.kubernetes.io/part-of=faas-infer -o name", ""},
		{"-n openfaas-fn get functions -o name", "function.faas-infer.dev/kept"},
	} {
		if got := kubectl(strings.Fields(c.args)...); got != c.want {
			t.Errorf("%s: %s", c.args, fmt.Sprintf("there is %q, want %q", got, c.want))
		}
	}
	// And again, over what was kept.
	helm("install", "faas-infer", chart)
	// A namespace that somebody else has made stays as it is.
	kubectl("create", "namespace", "models")
	helm("upgrade", "faas-infer", chart, "--set", "functions.namespace=models")
	if got := kubectl("get", "namespace", "models", "-o", "jsonpath={.metadata.labels} {.metadata.annotations}"); got != `{"kubernetes.io/metadata.name":"models"}` {
		t.Errorf("the namespace of others has %s", got)
	}
	if got := kubectl("get", "namespace", "openfaas-fn", "-o", `jsonpath={.metadata.labels.pod-security\.kubernetes\.io/enforce}`); got != "restricted" {
		t.Errorf("the chart's own namespace has the level %q", got)
	}
}

// The chart takes the namespace of functions for its own only if its own release has made it, not
// one of the same name elsewhere.
func TestANamespaceOfAnotherRelease(t *testing.T) {
	const name = "models-of-others"
	_, err := cluster.Kubectl(t.Context(), "", "create", "namespace", name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		namespace string
		made      bool
	}{{"elsewhere", false}, {"openfaas", true}} {
		_, err := cluster.Kubectl(t.Context(), "", "annotate", "--overwrite", "namespace", name, "meta.helm.sh/release-name=faas-infer", "meta.helm.sh/release-namespace="+c.namespace)
		if err != nil {
			t.Fatal(err)
		}
		command := exec.CommandContext(t.Context(), program(t), "template", "faas-infer", filepath.Join(root, "yaml", "chart", "faas-infer"), "--namespace", "openfaas",
			"--kube-version", testcluster.Version, "--set", "functions.namespace="+name, "--dry-run=server", "--kubeconfig", cluster.Kubeconfig())
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if made := strings.Contains(string(out), "kind: Namespace\n"); made != c.made {
			t.Errorf("of the release in %s: the chart makes it: %v", c.namespace, made)
		}
	}
}
