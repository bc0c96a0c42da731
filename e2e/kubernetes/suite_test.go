package kubernetes_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
)

// suite are the tests of package e2e that say something about a cluster. The others
// are about one machine: its directories of bundles, its control groups, its users,
// and what is measured on it.
const suite = "^(TestUp|TestConformance|TestUpdateUnderLoad|TestToZeroAndBack|TestAsyncCallbacks|TestAsyncOutlastsKills|TestWebInterface|" +
	"TestBadRequestsDoNotSpoilTheirBatch|TestClientsThatHangUp|TestObjectiveBelowTheFastestExecution|TestDrain|TestProviderKilledUnderLoad|" +
	"TestInstancesKilledUnderLoad|TestOrdinaryInstancesKilledUnderLoad)$"

// patience is how long the suite may take.
const patience = 25 * time.Minute

// The end-to-end tests pass on a cluster as they do on one machine: the stock
// gateway, the provider, and functions that a kubelet runs.
func TestEndToEnd(t *testing.T) {
	if err := testcluster.NodePossible(t.Context()); err != nil {
		t.Skipf("*** NO REAL NODE: %v ***", err)
	}
	dir := os.Getenv(preparedVariable)
	began := time.Now()
	c, err := testcluster.Start(t.Context(), testcluster.Options{Node: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the cluster is up after %v", time.Since(began))
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"create", "namespace", "openfaas"},
		{"create", "namespace", "openfaas-fn"},
		{"apply", "--server-side", "-f", filepath.Join(root, "yaml", "crd.yaml")},
		{"wait", "--for=condition=Established", "crd/functions.faas-infer.dev", "--timeout=60s"},
	} {
		if _, err := c.Kubectl(t.Context(), "", command...); err != nil {
			t.Fatal(err)
		}
	}
	base := c.RegistryHost() + "/faas-infer/base:latest"
	if _, err := run(filepath.Join(dir, "faas-infer-kubernetes"), "image", "push", filepath.Join(dir, "base.tar"), base); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"kubectl": filepath.Join(c.Binaries(), "bin", "kubectl"), "kubeconfig": c.Kubeconfig(), "registry": c.RegistryHost(), "base": base,
		"authority": c.Authority(), "program": filepath.Join(dir, "faas-infer"), "provider": filepath.Join(dir, "faas-infer-kubernetes"),
	})
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"-test.v", "-test.timeout", patience.String(), "-test.run", suite}
	if only := os.Getenv("FAAS_INFER_E2E_RUN"); only != "" {
		arguments[len(arguments)-1] = only
	}
	if testing.Short() {
		arguments = append(arguments, "-test.short")
	}
	tests := exec.CommandContext(t.Context(), filepath.Join(dir, "e2e.test"), arguments...)
	tests.Dir = filepath.Join(root, "e2e")
	tests.Env = append(os.Environ(), "FAAS_INFER_E2E_KUBERNETES="+string(text))
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	if err := tests.Run(); err != nil {
		t.Errorf("the end-to-end tests: %v", err)
		if keep := os.Getenv("FAAS_INFER_KEEP_LOGS"); keep != "" {
			if err := os.CopyFS(keep, os.DirFS(c.Logs())); err != nil {
				t.Error(err)
			}
		}
	}
}
