package command

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/gpu"
)

// An instance computes on a GPU if it has a share of one, or with --device cuda.
func TestDevice(t *testing.T) {
	on := func(device string) bool { return (&instanceFlags{device: device}).onGPU() }
	if on(automatic) || !on(onCUDA) {
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
	f := &instanceFlags{model: "bundle.yaml", device: "gpu"}
	if err := f.run(nil); err == nil || err.Error() != `--device "gpu": it must be auto, cpu or cuda` {
		t.Errorf("%v", err)
	}
	for _, f := range []*instanceFlags{
		{prepared: t.TempDir(), part: -1, concurrency: 1, device: onCUDA, threads: 1}, {model: "m.onnx", plan: "{}", part: 0, concurrency: 1, device: onCUDA, threads: 1},
	} {
		_, err := f.isMember()
		if err == nil {
			_, _, err = f.loadOnGPU(t.Context(), zerolog.Nop())
		}
		if err == nil || !strings.Contains(err.Error(), "CPU") {
			t.Errorf("%v", err)
		}
	}
}

// Threads that the engine on a GPU would not use are refused. The provider's instances have as many as their
// quota, whatever they run on.
func TestThreadsOnGPU(t *testing.T) {
	for device, refused := range map[string]bool{onCUDA: true, automatic: false} {
		_, _, err := (&instanceFlags{device: device, threads: 2}).loadOnGPU(t.Context(), zerolog.Nop())
		if err == nil || strings.HasPrefix(err.Error(), "--threads is 2") != refused {
			t.Errorf("%s: %v", device, err)
		}
	}
}

// A process stands by for a shared GPU only, and none does where a program has the GPU to itself. An empty
// one stands by once there is a body. An
// instance takes one only if it needs nothing of its own process.
func TestStandBeside(t *testing.T) {
	f := &ProviderFlags{state: t.TempDir(), standBy: true}
	beside, err := f.standbys(zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	k := beside.gpus
	model := cluster.InstanceSpec{Kind: cluster.Model, Devices: []string{"GPU-1"}, Config: cluster.Config{Resources: cluster.Resources{GPU: 40}}}
	program := cluster.InstanceSpec{Kind: cluster.Process, Devices: []string{"GPU-1"}}
	mps := []string{"CUDA_VISIBLE_DEVICES=GPU-1", "CUDA_MPS_PIPE_DIRECTORY=/p"}
	beside.starts(model, mps[:1])
	if k.Keeps("GPU-1") {
		t.Error("one stands by for a whole GPU")
	}
	beside.starts(model, mps)
	if !k.Keeps("GPU-1") {
		t.Error("none stands by")
	}
	beside.starts(program, mps[:1])
	if k.Keeps("GPU-1") {
		t.Error("one stands by beside a program")
	}
	if beside.memory() != 0 {
		t.Error("an empty instance is kept without a body")
	}
	beside.starts(cluster.InstanceSpec{Kind: cluster.Model, Paired: true}, nil)
	if !beside.shadow.Keeps(forShadows) || beside.memory() != emptyMemory {
		t.Error("no empty instance is kept beside a body")
	}
	if localPlatform(Base{}, nil, &beside).Unwanted(); beside.memory() != 0 {
		t.Error("an empty instance is kept although no function has shadows")
	}
	for _, i := range []instanceFlags{
		{model: "m.onnx", device: onCUDA, part: -1}, {model: "m.onnx", device: onCPU, part: -1, standby: f.standbyDir()},
		{model: "bundle.yaml", device: onCUDA, part: -1, standby: f.standbyDir()}, {model: "m.onnx", device: onCUDA, part: -1, standby: f.standbyDir()},
	} {
		if i.takeStandby() != nil {
			t.Errorf("%+v was handed over to nobody", i)
		}
	}
}
