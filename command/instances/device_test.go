package instances

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/gpu"
)

// An instance computes on a GPU if it has a share of one, or with --device cuda.
func TestDevice(t *testing.T) {
	on := func(device string) bool { return (&Flags{Device: device}).onGPU() }
	if on(automatic) || !on(OnCUDA) {
		t.Error("without a share, auto computes on a GPU or cuda does not")
	}
	for name, value := range (gpu.Share{Device: "GPU-1", Percent: 20}).Env() {
		t.Setenv(name, value)
	}
	if !on(automatic) || on(onCPU) {
		t.Error("with a share, auto computes on the CPU or cpu does not")
	}
}

// An invalid device is refused with the flag's name, for every engine. A model that exists only
// for the CPU is not computed on a GPU.
func TestDeviceRefused(t *testing.T) {
	f := &Flags{Model: "bundle.yaml", Device: "gpu"}
	if err := f.run(nil, nil); err == nil || err.Error() != `--device "gpu": it must be auto, cpu or cuda` {
		t.Errorf("%v", err)
	}
	f = &Flags{Prepared: t.TempDir(), Device: OnCUDA, Threads: 1}
	if _, _, err := f.loadOnGPU(t.Context(), zerolog.Nop()); err == nil || !strings.Contains(err.Error(), "CPU") {
		t.Errorf("%v", err)
	}
}

// Threads that the engine on a GPU would not use are refused. The provider's instances have as many as their
// quota, whatever they run on.
func TestThreadsOnGPU(t *testing.T) {
	for device, refused := range map[string]bool{OnCUDA: true, automatic: false} {
		_, _, err := (&Flags{Device: device, Threads: 2}).loadOnGPU(t.Context(), zerolog.Nop())
		if err == nil || strings.HasPrefix(err.Error(), "--threads is 2") != refused {
			t.Errorf("%s: %v", device, err)
		}
	}
}

// An instance takes a process that stands by only if it needs nothing of its own process.
func TestTakeStandby(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []Flags{
		{Model: "m.onnx", Device: OnCUDA}, {Model: "m.onnx", Device: onCPU, standby: dir},
		{Model: "bundle.yaml", Device: OnCUDA, standby: dir}, {Model: "m.onnx", Device: OnCUDA, standby: dir},
	} {
		if f.takeStandby(false) != nil {
			t.Errorf("%+v was handed over to nobody", f)
		}
	}
}
