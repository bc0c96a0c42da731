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

// The key of the nodes' agents is the same in both namespaces, also beside a secret of others, and stays.
func TestKeyOfAgentsStays(t *testing.T) {
	const namespace = "of-keys"
	kubectl(t, "", "create", "namespace", namespace)
	keys := func(want int) (key string) {
		t.Helper()
		text, err := asked(t, namespace, "copies.enabled=true")
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		n := 0
		for at, object := range read(t, text[strings.Index(text, "---\n"):]) {
			if at == "Secret "+namespace+"/faas-infer-copies" || at == "Secret faas-infer-copies/faas-infer-copies" {
				got := object.Object["data"].(map[string]any)["key"].(string)
				if n++; n > 1 && got != key {
					t.Errorf("the namespaces have %q and %q", key, got)
				}
				key = got
			}
		}
		if n != want {
			t.Errorf("there are %d secrets, want %d", n, want)
		}
		return key
	}
	if a, b := keys(2), keys(2); len(a) < 32 || a == b {
		t.Errorf("two installations have keys of %d, %d digits", len(a), len(b))
	}
	kubectl(t, "", "-n", namespace, "create", "secret", "generic", "faas-infer-copies", "--from-literal=key=b")
	if got := keys(1); got != "Yg==" {
		t.Errorf("beside a secret of others the agents get %q", got)
	}
	kubectl(t, "", "-n", namespace, "annotate", "secret", "faas-infer-copies", "meta.helm.sh/release-name=faas-infer")
	if got := keys(2); got != "Yg==" {
		t.Errorf("after the upgrade it is %q", got)
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
	// Its provider may have a name of its own.
	kubectl(t, "", "-n", namespace, "delete", "deployment", "first")
	kubectl(t, "", "-n", namespace, "create", "deployment", "serving", "--image=a", "--replicas=0")
	kubectl(t, "", "-n", namespace, "annotate", "deployment", "serving", "meta.helm.sh/release-name=first")
	if out, err := asked(t, "openfaas"); err != nil {
		t.Errorf("beside something else of that release: %v: %s", err, out)
	}
	kubectl(t, "", "-n", namespace, "label", "deployment", "serving", "app.kubernetes.io/component=provider")
	if out, err := asked(t, "openfaas"); err == nil || !strings.Contains(out, "serves this cluster's functions already") {
		t.Errorf("beside one with another name: %v: %s", err, out)
	}
	annotate("meta.helm.sh/release-name=faas-infer", "meta.helm.sh/release-namespace=openfaas")
	if out, err := asked(t, "openfaas"); err != nil {
		t.Errorf("the same one again: %v: %s", err, out)
	}
	kubectl(t, "", "delete", "namespace", namespace, "--wait=false")
}

// The notes after an installation say the next commands, first that which makes a missing secret.
func TestNotes(t *testing.T) {
	const namespace = "of-notes"
	defineOthers(t)
	await(t, "routes", func(ctx context.Context) error {
		_, err := cluster.Kubectl(ctx, "", "get", "httproutes", "-A")
		return err
	})
	kubectl(t, "", "create", "namespace", namespace)
	notes := func(values ...string) string {
		t.Helper()
		args := []string{"install", "faas-infer", filepath.Join(root, "yaml", "chart", "faas-infer"),
			"--namespace", namespace,
			"--dry-run=server", "--take-ownership", "--kubeconfig", cluster.Kubeconfig(), "--set", "functions.create=false"}
		for _, v := range values {
			args = append(args, "--set", v)
		}
		out, err := exec.CommandContext(t.Context(), program(t), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, text, _ := strings.Cut(string(out), "\nNOTES:\n")
		return text
	}
	const secret = "create secret generic basic-auth"
	own := notes()
	for _, want := range []string{secret, "rollout status deployment/faas-infer", "helm -n of-notes test faas-infer",
		"port-forward service/faas-infer-api 8080:8080", "--gateway http://127.0.0.1:8080", "faas-cli deploy"} {
		if !strings.Contains(own, want) {
			t.Errorf("the notes lack %q: %s", want, own)
		}
	}
	for _, c := range []struct {
		values    string
		want, not string
	}{
		{"generateBasicAuth=true", "faas-cli login", secret},
		{"gateway.enabled=true,service.port=80", "service/gateway 8080:80", "faas-infer-api"},
		{"tls.enabled=true", "https://127.0.0.1:8080", "http://127"},
		{"ingress.enabled=true,ingress.hosts[0].host=a.example.com", "--gateway http://a.example.com\n", "port-forward"},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=p,httpRoute.hostnames={b.example.com}",
			"https://b.example.com", "port-forward"},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=p", "port-forward", "https:///"},
	} {
		if text := notes(c.values); !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
			t.Errorf("%s: the notes have no %q, or have %q: %s", c.values, c.want, c.not, text)
		}
	}
	kubectl(t, "", "-n", namespace, "create", "secret", "generic", "basic-auth")
	if text := notes(); strings.Contains(text, secret) {
		t.Errorf("the secret is there, and the notes say %s", text)
	}
	kubectl(t, "", "delete", "namespace", namespace, "--wait=false")
}

// The password of the API is made if the values say so. One that is there stays, whoever has made it.
func TestBasicAuthStays(t *testing.T) {
	const namespace = "of-basic-auth"
	kubectl(t, "", "create", "namespace", namespace)
	password := func(values ...string) string {
		t.Helper()
		text, err := asked(t, namespace, values...)
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		object := read(t, text[strings.Index(text, "---\n"):])["Secret "+namespace+"/basic-auth"]
		data, _ := object.Object["data"].(map[string]any)
		made, _ := data["basic-auth-password"].(string)
		return made
	}
	if got := password(); got != "" {
		t.Errorf("without the value it makes %q", got)
	}
	if a, b := password("generateBasicAuth=true"), password("generateBasicAuth=true"); len(a) < 32 || a == b {
		t.Errorf("two installations have passwords of %d and %d characters; equal: %v", len(a), len(b), a == b)
	}
	kubectl(t, "", "-n", namespace, "create", "secret", "generic", "basic-auth", "--from-literal=basic-auth-password=b")
	if got := password("generateBasicAuth=true"); got != "" {
		t.Errorf("a secret of others gets the password %q", got)
	}
	kubectl(t, "", "-n", namespace, "annotate", "secret", "basic-auth", "meta.helm.sh/release-name=faas-infer")
	if got := password("generateBasicAuth=true"); got != "Yg==" {
		t.Errorf("after an upgrade the password is %q", got)
	}
	kubectl(t, "", "delete", "namespace", namespace, "--wait=false")
}
