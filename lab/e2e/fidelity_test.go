package e2e

import (
	"io"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/lab/fidelity"
)

// A real provider and the simulator get the same requests, and both report figures. The
// differences are not tested because the machine is shared.
func TestSimulatorAgainstAProvider(t *testing.T) {
	t.Setenv("FAAS_INFER_ONNXRUNTIME", suite.library)
	o := fidelity.Default()
	o.Rig, o.Engine = fidelity.RigOptions{Self: suite.binary, Prepared: suite.prepared}, "onnxruntime "+onnxruntime.LibraryVersion
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
