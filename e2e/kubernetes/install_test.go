package kubernetes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/isolation"
)

// overlay is what a user writes to install from yaml/. Here there is no proxy for
// services, so the provider is told where the API server is.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%q]
images: [{name: registry.example.com/faas-infer/provider, newName: %s, newTag: latest}]
patches:
  - patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: faas-infer, namespace: openfaas}
      spec:
        template:
          spec:
            containers:
              - name: provider
                env: [{name: KUBERNETES_SERVICE_HOST, value: %q}, {name: KUBERNETES_SERVICE_PORT, value: %q}]
                resources: {requests: {cpu: 100m, memory: 128Mi, ephemeral-storage: 128Mi}}
`

const installed = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: mnist, namespace: openfaas-fn}
spec: {image: %s, annotations: {com.openfaas.slo.latency: 5s}, labels: {com.openfaas.scale.max: "1"}}
`

// What yaml/ installs runs: two replicas of the provider in pods, with no right that
// is not theirs and within Pod Security's "restricted", and a model that both serve.
func TestInstalled(t *testing.T) {
	f := start(t, testcluster.Options{})
	provider, image := f.RegistryHost()+"/faas-infer/provider", f.RegistryHost()+"/team/mnist:v1"
	f.image(t, "provider", "--base", filepath.Join(f.programs, "base.tar"), "--push", provider+":latest")
	bundles := t.TempDir()
	if _, err := run(f.program("faas-infer"), "model", "bundle", "mnist", "--root", bundles, "--image", "mnist:latest"); err != nil {
		t.Fatal(err)
	}
	f.image(t, "function", filepath.Join(bundles, "mnist", "latest"), "--base", f.base, "--push", image)
	f.kubectl(t, "", "-n", "openfaas", "create", "secret", "generic", "basic-auth",
		"--from-literal=basic-auth-user=admin", "--from-literal=basic-auth-password=of the tests")
	f.kubectl(t, "", "apply", "--server-side", "-k", f.overlay(t, provider))
	if out, err := f.Kubectl(t.Context(), "", "-n", "openfaas", "rollout", "status", "deployment/faas-infer", "--timeout=120s"); err != nil {
		t.Fatalf("%v: %s\n%s\n%s", err, out, f.kubectl(t, "", "-n", "openfaas", "describe", "pods"), f.logs(t))
	}
	f.kubectl(t, fmt.Sprintf(installed, image), "apply", "-f", "-")
	addresses := strings.Fields(f.kubectl(t, "", "-n", "openfaas", "get", "pods", "-l", "app.kubernetes.io/component=provider",
		"--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].status.podIP}"))
	if len(addresses) != 2 {
		t.Fatalf("providers are at %v", addresses)
	}
	body, err := request()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		await(t, "the model's answer at "+address, func() error {
			got, err := get(t.Context(), http.MethodPost, "http://"+address+":8081/function/mnist", string(body))
			if err == nil && !strings.Contains(got, "predictions") {
				err = errors.New(got)
			}
			return err
		})
	}
	for line := range strings.Lines(f.logs(t)) {
		if strings.Contains(line, `"level":"error"`) || strings.Contains(line, "forbidden") {
			t.Errorf("a provider says %s", line)
		}
	}
}

// request asks mnist for a black picture.
func request() ([]byte, error) {
	picture := make([][]float32, 28)
	for i := range picture {
		picture[i] = make([]float32, 28)
	}
	return json.Marshal(map[string]any{"instances": [][][][]float32{{picture}}})
}

// overlay writes a kustomization and returns its directory.
func (f *fixture) overlay(t *testing.T, image string) string {
	t.Helper()
	dir := t.TempDir()
	yaml, err := filepath.Abs(filepath.Join("..", "..", "yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// Kustomize takes no absolute paths.
	base, err := filepath.Rel(dir, yaml)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(f.Server(), ":")
	text := fmt.Sprintf(overlay, base, image, isolation.NodeAddress, port)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// logs are those of the providers in pods.
func (f *fixture) logs(t *testing.T) string {
	t.Helper()
	out, err := f.Kubectl(t.Context(), "", "-n", "openfaas", "logs", "-l", "app.kubernetes.io/component=provider", "--tail=-1", "--prefix")
	if err != nil {
		return err.Error()
	}
	return out
}
