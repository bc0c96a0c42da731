package install

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// asked returns Helm's output for the chart, which may ask the cluster what is there.
func asked(t *testing.T, namespace string, values ...string) (string, error) {
	t.Helper()
	args := []string{"template", "faas-infer", filepath.Join(root, "yaml", "chart", "faas-infer"), "--namespace", namespace,
		"--kube-version", testcluster.Version, "--dry-run=server", "--kubeconfig", cluster.Kubeconfig()}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	out, err := exec.CommandContext(t.Context(), program(t), args...).CombinedOutput()
	return string(out), err
}

// The passwords of NATS are made once: an upgrade has the same, and a secret of others is left alone.
func TestPasswordsStay(t *testing.T) {
	const namespace = "of-passwords"
	kubectl(t, "", "create", "namespace", namespace)
	secret := func(text string) map[string]string {
		t.Helper()
		data := map[string]string{}
		for key, object := range read(t, text[strings.Index(text, "---\n"):]) {
			if key == "Secret "+namespace+"/nats-auth" {
				for name, value := range object.Object["data"].(map[string]any) {
					data[name] = value.(string)
				}
			}
		}
		return data
	}
	first, err := asked(t, namespace, "nats.enabled=true")
	if err != nil {
		t.Fatalf("%v: %s", err, first)
	}
	made := secret(first)
	if made["username"] == "" || len(made["password"]) < 32 || len(made["gateway-password"]) < 32 || made["password"] == made["gateway-password"] {
		t.Fatalf("it has the keys %d long: %d, %d", len(made), len(made["password"]), len(made["gateway-password"]))
	}
	again, err := asked(t, namespace, "nats.enabled=true")
	if err != nil || secret(again)["password"] == made["password"] {
		t.Errorf("two installations have the same password: %v", err)
	}
	kubectl(t, "", "-n", namespace, "create", "secret", "generic", "nats-auth", "--from-literal=username=a", "--from-literal=password=b")
	if text, err := asked(t, namespace, "nats.enabled=true"); err != nil || len(secret(text)) > 0 {
		t.Errorf("a secret of others is replaced: %v", err)
	}
	kubectl(t, "", "-n", namespace, "annotate", "secret", "nats-auth", "meta.helm.sh/release-name=faas-infer")
	upgraded, err := asked(t, namespace, "nats.enabled=true")
	if err != nil {
		t.Fatalf("%v: %s", err, upgraded)
	}
	// Keys that an earlier release did not make are added.
	if got := secret(upgraded); got["username"] != "YQ==" || got["password"] != "Yg==" || len(got["gateway-password"]) < 32 {
		t.Errorf("after the upgrade it has %v", got)
	}
}

// A second release in one cluster is refused with a sentence, unless the first one is gone.
func TestTwoReleases(t *testing.T) {
	const namespace = "of-another"
	kubectl(t, definition(t), "apply", "--server-side", "--force-conflicts", "-f", "-")
	kubectl(t, "", "create", "namespace", namespace)
	annotate := func(more ...string) {
		t.Helper()
		kubectl(t, "", append([]string{"annotate", "--overwrite", "crd", "functions.faas-infer.dev"}, more...)...)
	}
	annotate("meta.helm.sh/release-name=first", "meta.helm.sh/release-namespace="+namespace)
	t.Cleanup(func() {
		_, _ = cluster.Kubectl(context.Background(), "", "annotate", "crd", "functions.faas-infer.dev", "meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-")
	})
	if out, err := asked(t, "openfaas"); err != nil {
		t.Errorf("after the first one is gone: %v: %s", err, out)
	}
	kubectl(t, "", "-n", namespace, "create", "deployment", "first", "--image=a", "--replicas=0")
	out, err := asked(t, "openfaas")
	if err == nil || !strings.Contains(out, "the release first in namespace "+namespace+" serves this cluster's functions already") {
		t.Errorf("beside the first one: %v: %s", err, out)
	}
	annotate("meta.helm.sh/release-name=faas-infer", "meta.helm.sh/release-namespace=openfaas")
	if out, err := asked(t, "openfaas"); err != nil {
		t.Errorf("the same one again: %v: %s", err, out)
	}
	kubectl(t, "", "delete", "namespace", namespace, "--wait=false")
}
