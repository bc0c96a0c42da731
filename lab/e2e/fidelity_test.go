// Package e2e compares the simulator with a real provider. Its test takes the machine's cores, so it
// runs alone.
package e2e

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/lab/fidelity"
)

// A real provider and the simulator get the same requests, and both report figures. The
// differences are not tested because the machine is shared.
func TestSimulatorAgainstAProvider(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "faas-infer")
	run(t, "go", "build", "-buildvcs=false", "-trimpath", "-o", binary)
	t.Setenv("FAAS_INFER_ONNXRUNTIME", run(t, "scripts/onnxruntime.sh"))
	o := fidelity.Default()
	o.Rig, o.Engine = fidelity.RigOptions{Self: binary, Prepared: t.TempDir()}, "onnxruntime "+onnxruntime.LibraryVersion
	o.Functions, o.Loads = []fidelity.Function{{Name: "mnist", SLO: 2 * time.Second, MaxBatch: 4}}, []float64{0.2}
	o.Duration, o.Longest, o.Warmup, o.Calibration, o.LeastRequests, o.Log = time.Second, time.Second, time.Second, time.Second, 1, io.Discard
	pairs, err := fidelity.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(pairs) != 1 {
		t.Fatalf("%d pairs", len(pairs))
	}
	p := pairs[0]
	t.Logf("at %.0f/s: %+v, simulated %+v", p.Rate, p.Real, p.Simulated)
	if p.Rate <= 0 || p.Real.Requests == 0 || p.Real.Requests != p.Simulated.Requests {
		t.Errorf("%d requests of %v/s, %d simulated", p.Real.Requests, p.Rate, p.Simulated.Requests)
	}
	for _, o := range []fidelity.Observed{p.Real, p.Simulated} {
		if o.Mean <= 0 || o.P99 < o.Mean/2 || o.Batch < 1 || o.Batch > 4 {
			t.Errorf("%+v", o)
		}
	}
	if len(p.RealConfigs) != 1 || len(p.SimulatedConfigs) == 0 {
		t.Errorf("instances %v, simulated %v", p.RealConfigs, p.SimulatedConfigs)
	}
}

// run runs a command in the repository's root and returns what it printed.
func run(t *testing.T, name string, arguments ...string) string {
	t.Helper()
	var complaint strings.Builder
	c := exec.CommandContext(t.Context(), name, arguments...)
	c.Dir, c.Stderr = filepath.Join("..", ".."), &complaint
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, complaint.String())
	}
	return strings.TrimSpace(string(out))
}
