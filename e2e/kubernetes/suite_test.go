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
	"TestInstancesKilledUnderLoad|TestPythonFunction|TestOrdinaryInstancesKilledUnderLoad)$"

// suiteTime is how long the suite may take.
const suiteTime = 25 * time.Minute

// soonAgain has the kubelet start what was killed again as soon as one machine does: its
// own pause is 10 s, then 20, and longer than a request waits soon.
const soonAgain = "featureGates: {KubeletCrashLoopBackOffMax: true}\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n"

// The end-to-end tests pass on a cluster as they do on one machine: the stock
// gateway, the provider, and functions that a kubelet runs.
func TestEndToEnd(t *testing.T) {
	began := time.Now()
	f := start(t, testcluster.Options{KubeletConfig: soonAgain})
	t.Logf("the cluster is up after %v", time.Since(began))
	text, err := json.Marshal(map[string]string{
		"kubectl": filepath.Join(f.Binaries(), "bin", "kubectl"), "kubeconfig": f.Kubeconfig(), "registry": f.RegistryHost(), "base": f.base,
		"authority": f.Authority(), "program": f.program("faas-infer"), "provider": f.program("faas-infer-kubernetes"),
	})
	if err != nil {
		t.Fatal(err)
	}
	only := suite
	if chosen := os.Getenv("FAAS_INFER_E2E_RUN"); chosen != "" {
		only = chosen
	}
	// Fewer kills: each takes a pod's start here, and one machine has seen many.
	arguments := []string{"-test.v", "-test.short", "-test.timeout", suiteTime.String(), "-test.run", only}
	tests := exec.CommandContext(t.Context(), f.program("e2e.test"), arguments...)
	tests.Dir = ".."
	tests.Env = append(os.Environ(), "FAAS_INFER_E2E_KUBERNETES="+string(text))
	tests.Stdout, tests.Stderr = os.Stdout, os.Stderr
	if err := tests.Run(); err != nil {
		t.Errorf("the end-to-end tests: %v", err)
	}
}
