package command

import (
	"testing"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// An instance computes on a GPU where it was given a share of one, and where it is told to.
func TestDevice(t *testing.T) {
	on := func(device string) onnxruntime.Device { return (&instanceFlags{device: device}).computesOn() }
	if got := on(automatic); got != onnxruntime.CPU {
		t.Errorf("without a share it computes on %s", got)
	}
	for name, value := range (gpu.Share{Device: "GPU-1", Percent: 20}).Env() {
		t.Setenv(name, value)
	}
	if got := on(automatic); got != onnxruntime.CUDA {
		t.Errorf("with a share it computes on %s", got)
	}
	if got := on("cpu"); got != onnxruntime.CPU {
		t.Errorf("told to use the CPU, it computes on %s", got)
	}
}

// What is none of them is refused by the flag's name, whatever the engine is.
func TestDeviceRefused(t *testing.T) {
	f := &instanceFlags{model: "bundle.yaml", device: "gpu"}
	if err := f.run(nil); err == nil || err.Error() != `--device "gpu": it is auto, cpu or cuda` {
		t.Errorf("%v", err)
	}
}
