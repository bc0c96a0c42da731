package kubernetes_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// exclusive makes the kubelet give whole cores to pods that ask for them, as
// clusters for latency do. It has to keep one for itself.
const exclusive = "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\""

const model = `apiVersion: faas-infer.dev/v1alpha1
kind: Function
metadata: {name: mnist, namespace: openfaas-fn}
spec:
  image: mnist:latest
  limits: {cpu: "1"}
  annotations: {com.openfaas.slo.latency: 2s}
  labels: {com.openfaas.scale.min: "1", com.openfaas.scale.max: "1"}
`

// Under the static CPU manager a model's instance has a whole core, which the
// kubelet gives to nobody else.
func TestInstancesHaveTheirCores(t *testing.T) {
	f := start(t, testcluster.Options{KubeletConfig: exclusive})
	bundles := t.TempDir()
	if _, err := run(f.program("faas-infer"), "model", "bundle", "mnist", "--root", bundles, "--image", "mnist:latest"); err != nil {
		t.Fatal(err)
	}
	f.image(t, "function", filepath.Join(bundles, "mnist", "latest"), "--base", f.base, "--push", f.RegistryHost()+"/library/mnist:latest")
	url := f.provider(t, "one")
	f.kubectl(t, model, "apply", "-f", "-")
	await(t, "an instance", func() error {
		_, err := get(t.Context(), http.MethodGet, url+"/healthz", "")
		if err == nil && f.kubectl(t, "", "get", "function", "mnist", "-n", "openfaas-fn", "-o", "jsonpath={.status.availableReplicas}") != "1" {
			err = fmt.Errorf("it is not ready: %s", f.kubectl(t, "", "get", "function", "mnist", "-n", "openfaas-fn", "-o", "jsonpath={.status}"))
		}
		return err
	})
	const of = `jsonpath={.items[0].metadata.uid} {.items[0].status.qosClass} {.items[0].spec.containers[0].resources.requests.cpu}`
	uid, class, _ := strings.Cut(f.kubectl(t, "", "get", "pods", "-n", "openfaas-fn", "-l", "faas_function=mnist", "-o", of), " ")
	if class != "Guaranteed 1" {
		t.Errorf("the pod is %s", class)
	}
	if cores := allowed(t, uid); cores != "1" {
		t.Errorf("the instance may run on cores %s, the one that is its own is 1", cores)
	}
}

// allowed are the cores of the instance's process in the pod with a UID.
func allowed(t *testing.T, uid string) string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		groups, _ := os.ReadFile(file)
		arguments, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if !strings.Contains(string(groups), "pod"+uid) || !strings.Contains(string(arguments), "\x00instance\x00") {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
		for line := range strings.Lines(string(status)) {
			if cores, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				return strings.TrimSpace(cores)
			}
		}
	}
	t.Fatal("the instance's process cannot be found")
	return ""
}
