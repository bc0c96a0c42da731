package children

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
)

// Each kind of GPU that is shared is named once, by model and driver.
func TestGPUKinds(t *testing.T) {
	i := gpu.Inventory{Driver: "580.95.05", Sharing: gpu.MPS, PipeDirectory: "/run/mps", Devices: []gpu.Device{
		{UUID: "GPU-a", Model: "NVIDIA T4"}, {UUID: "GPU-b", Model: "NVIDIA A100"}, {UUID: "GPU-c", Model: "NVIDIA T4"},
		{UUID: "GPU-d", Model: "NVIDIA P4", Unshareable: "compute capability 6.1"},
		{UUID: "GPU-e", Model: "NVIDIA L4", Lost: "XID 79"},
	}}
	m := gpuModels{inventory: func() gpu.Inventory { return i }}
	if got := m.Devices(); !slices.Equal(got, []string{"NVIDIA A100, driver 580.95.05", "NVIDIA T4, driver 580.95.05"}) {
		t.Errorf("%q", got)
	}
	other := i
	other.Driver = "570.1"
	m.others = func() []gpu.Inventory { return []gpu.Inventory{other, i} }
	if got := m.Devices(); len(got) != 4 {
		t.Errorf("with other nodes: %q", got)
	}
	i, m.others = gpu.Inventory{}, nil
	if got := m.Devices(); len(got) != 0 {
		t.Errorf("without a GPU: %q", got)
	}
}

// A GPU that cannot be shared is used as a whole, without MPS. One that is shared is measured through the
// daemon that serves it.
func TestMeasureOn(t *testing.T) {
	i := gpu.Inventory{Driver: "1", Sharing: gpu.MPS, Devices: []gpu.Device{
		{UUID: "GPU-a", Model: "NVIDIA P4", Unshareable: "MPS is missing", Whole: true}, {UUID: "GPU-b", Model: "NVIDIA T4", PipeDirectory: "/state/b/pipe"},
		{UUID: "MIG-c", Model: "NVIDIA A100", Parent: "GPU-c", Percent: 42, Unshareable: "it is a MIG instance", Whole: true},
	}}
	if got := (gpuModels{inventory: func() gpu.Inventory { return i }}).Devices(); !slices.Equal(got, []string{"NVIDIA A100, driver 1", "NVIDIA P4, driver 1", "NVIDIA T4, driver 1"}) {
		t.Errorf("%q", got)
	}
	// The times of a MIG instance follow from those of a whole GPU, which is not here.
	m := gpuModels{Models: &Models{Config: Config{Prepared: t.TempDir(), Database: t.TempDir() + "/operators.jsonl"}}, inventory: func() gpu.Inventory { return i }}
	if _, err := m.OnDevice(t.Context(), mnistFile(t), "NVIDIA A100, driver 1", 4, 0); err == nil || !strings.Contains(err.Error(), "no NVIDIA A100, driver 1 as a whole") {
		t.Errorf("%v", err)
	}
	for n, want := range []string{"--device cuda --gpu GPU-a --shares 100", "--device cuda --gpu GPU-b --shares " + deploymentShares + " --mps-pipe /state/b/pipe"} {
		if got := strings.Join(measureOn(i, &i.Devices[n]), " "); got != want {
			t.Errorf("%s", got)
		}
	}
}

// A GPU of this machine is measured, not predicted.
func TestMeasuredBeforePredicted(t *testing.T) {
	var idle []bool
	m := gpuModels{Models: &Models{Config: Config{Prepared: t.TempDir(), Database: t.TempDir() + "/operators.jsonl"}}, inventory: func() gpu.Inventory {
		return gpu.Inventory{Driver: "1", Sharing: gpu.MPS, Devices: []gpu.Device{{UUID: "GPU-none", Model: "NVIDIA T4", PipeDirectory: "/none"}}}
	}}
	m.Place = func(_ int, background bool) error {
		idle = append(idle, background)
		return nil
	}
	if _, err := m.OnDevice(t.Context(), mnistFile(t), "NVIDIA T4, driver 1", 4, 0); err == nil || !slices.Equal(idle, []bool{false}) {
		t.Errorf("%v, idle %v", err, idle)
	}
}

// Only ONNX files run on a share. Other engines have a whole GPU if their function asks for one, unless
// their libraries are those for CPUs.
func TestGPUUnable(t *testing.T) {
	m, manifest := gpuModels{inventory: func() gpu.Inventory { return gpu.Inventory{} }}, pythonBundle(t, doubling)
	for _, k := range []struct {
		file string
		only bool
		why  string
	}{
		{"a/model.onnx", false, ""}, {"a/model.onnx", true, ""}, {"a/m.plan.json", true, "cut"},
		{manifest, false, "only an ONNX model shares GPUs"}, {manifest, true, ""},
	} {
		if why := m.Unable(k.file, k.only); (why == "") != (k.why == "") || !strings.Contains(why, k.why) {
			t.Errorf("%s: %q, want %q", k.file, why, k.why)
		}
	}
	write(t, manifest, "name: double\nengine: tensorflow\nmodel: saved\n")
	if err := os.Mkdir(filepath.Join(filepath.Dir(manifest), "saved"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(filepath.Dir(manifest), "saved", "saved_model.pb"), "x")
	if why := m.Unable(manifest, true); !strings.Contains(why, "build for CPUs") {
		t.Errorf("TensorFlow: %q", why)
	}
	if _, err := m.OnDevice(t.Context(), manifest, "NVIDIA T4, driver 1", 4, 0); err == nil || !strings.Contains(err.Error(), "the provider's machine has no NVIDIA T4") {
		t.Errorf("%v", err)
	}
}

// An engine that nobody can measure is refused before it is deployed: on a cluster, instances do it. One that holds
// all memory of a GPU fits on it.
func TestWholeGPUOfTheProvider(t *testing.T) {
	i := gpu.Inventory{Driver: "1", Sharing: gpu.MPS, Devices: []gpu.Device{{UUID: "GPU-a", Model: "NVIDIA T4", Memory: 15<<30 + 700_000}}}
	var own gpu.Inventory
	m := gpuModels{inventory: func() gpu.Inventory { return own }}
	manifest := pythonBundle(t, doubling)
	if why := m.Unusable(manifest, "NVIDIA T4, driver 1"); !strings.Contains(why, "the provider's machine has no NVIDIA T4") {
		t.Errorf("without a GPU: %q", why)
	}
	m.others = func() []gpu.Inventory { return []gpu.Inventory{i} }
	if why := m.Unusable(manifest, "NVIDIA T4, driver 1"); why != "" {
		t.Errorf("on another node: %q", why)
	}
	own = i
	if why := m.Unusable(manifest, "NVIDIA T4, driver 1"); why != "" {
		t.Errorf("on its own: %s", why)
	}
	p := &profiler.Profile{Measurements: []profiler.Measurement{{Batch: 1, Threads: 1, GPU: 100}}}
	p.HoldDevice(i.Devices[0].Memory)
	if got := p.DeviceMemory(1); got > i.Devices[0].Memory || got < 15<<30 {
		t.Errorf("%d bytes of %d", got, i.Devices[0].Memory)
	}
}

// A GPU that the cluster gives to one container suits the models that take a whole one.
func TestDedicatedGPU(t *testing.T) {
	i := gpu.Inventory{Driver: "1", Sharing: gpu.MPS, Devices: []gpu.Device{
		{UUID: "GPU-a", Model: "NVIDIA T4"}, {UUID: gpu.Granted(0), Model: "NVIDIA T4", Whole: true, Dedicated: true, Grant: gpu.WholeResource}}}
	m := gpuModels{inventory: func() gpu.Inventory { return gpu.Inventory{} }, others: func() []gpu.Inventory { return []gpu.Inventory{i} }}
	if all := m.Devices(); !slices.Equal(all, []string{"NVIDIA T4, driver 1", "NVIDIA T4, driver 1, whole"}) {
		t.Errorf("%q", all)
	}
	manifest := pythonBundle(t, doubling)
	for _, kind := range m.Devices() {
		if !m.Suits(manifest, kind) || m.Suits("a/model.onnx", kind) == gpu.IsDedicated(kind) {
			t.Errorf("%s suits %v and %v", kind, m.Suits(manifest, kind), m.Suits("a/model.onnx", kind))
		}
	}
}

// What keeps a model from a GPU is known before it is tried: no library, a driver that is older than it,
// too little memory.
func TestGPUUnusable(t *testing.T) {
	i := gpu.Inventory{Driver: "570.1", CUDA: "12.8", Sharing: gpu.MPS, Devices: []gpu.Device{{UUID: "GPU-a", Model: "NVIDIA T4", Memory: 16 << 30}}}
	version, missing := 12, error(nil)
	m := gpuModels{inventory: func() gpu.Inventory { return i }, installed: func() (int, error) { return version, missing }}
	file, device := mnistFile(t), "NVIDIA T4, driver 570.1"
	expect := func(want string) {
		t.Helper()
		if got := m.Unusable(file, device); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect("")
	version = 13
	expect("NVIDIA's driver 570.1 supports CUDA up to 12.8, and ONNX Runtime's library is built for CUDA 13")
	missing = errors.New("the library is missing")
	expect("the library is missing")
	if got := m.Unusable(file, "NVIDIA A100, driver 580"); got != "" {
		t.Errorf("another machine's GPU: %s", got)
	}
	if err := os.Truncate(file, 20<<30); err != nil {
		t.Fatal(err)
	}
	expect("the model's weights alone need 20480 MiB of memory, and the GPU has 16384 MiB")
}

// A model is refused on a GPU whose operators are unknown and that this machine does not have.
func TestGPUElsewhere(t *testing.T) {
	m := gpuModels{Models: &Models{Config: Config{Prepared: t.TempDir(), Database: t.TempDir() + "/operators.jsonl"}}, inventory: func() gpu.Inventory { return gpu.Inventory{} }}
	_, err := m.OnDevice(t.Context(), mnistFile(t), "NVIDIA T4, driver 1", 4, 0)
	if err == nil || !strings.Contains(err.Error(), "this machine has no NVIDIA T4, driver 1") || !strings.Contains(err.Error(), "no operators") {
		t.Errorf("%v", err)
	}
}

func mnistFile(t *testing.T) string {
	t.Helper()
	made, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := made.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}
