package kubernetes_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// suite are the tests of package e2e that are meaningful on a cluster. The others concern
// one machine: its bundle directories, control groups, users, and measurements.
const suite = "^(TestUp|TestConformance|TestUpdateUnderLoad|TestToZeroAndBack|TestAsyncCallbacks|TestAsyncOutlastsKills|" +
	"TestWebInterface|TestConsoleHolds|TestConsolePutsRight|" +
	"TestBadRequestsDoNotSpoilTheirBatch|TestClientsThatHangUp|TestObjectiveBelowTheFastestExecution|TestDrain|TestProviderKilledUnderLoad|" +
	"TestInstancesKilledUnderLoad|TestPythonFunction|TestALargeModelIsCut|TestOrdinaryInstancesKilledUnderLoad)$"

// suiteTime is how long the suite may take.
const suiteTime = 25 * time.Minute

// soonAgain lets the kubelet restart killed containers as soon as one machine does. Its
// default pause is 10 s, then 20, and soon longer than a request waits.
const soonAgain = "featureGates: {KubeletCrashLoopBackOffMax: true}\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n"

// The end-to-end tests pass on a cluster with the stock gateway, the provider, and
// functions that a kubelet runs.
func TestEndToEnd(t *testing.T) {
	f := shared(t)
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
