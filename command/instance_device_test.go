package command

import (
	"testing"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// An instance computes on a GPU if it has a share of one, or with --device cuda.
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

// An invalid device is refused with the flag's name, for every engine.
func TestDeviceRefused(t *testing.T) {
	f := &instanceFlags{model: "bundle.yaml", device: "gpu"}
	if err := f.run(nil); err == nil || err.Error() != `--device "gpu": it must be auto, cpu or cuda` {
		t.Errorf("%v", err)
	}
}
