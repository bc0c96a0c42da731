package command

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// Each kind of GPU that is shared is named once, by model and driver.
func TestGPUKinds(t *testing.T) {
	i := gpu.Inventory{Driver: "580.95.05", Sharing: gpu.MPS, PipeDirectory: "/run/mps", Devices: []gpu.Device{
		{UUID: "GPU-a", Model: "NVIDIA T4"}, {UUID: "GPU-b", Model: "NVIDIA A100"}, {UUID: "GPU-c", Model: "NVIDIA T4"},
		{UUID: "GPU-d", Model: "NVIDIA P4", Unshareable: "compute capability 6.1"},
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

// Only ONNX files run on a share.
func TestGPUUnable(t *testing.T) {
	m := gpuModels{}
	if why := m.Unable("a/model.onnx"); why != "" {
		t.Error(why)
	}
	if why := m.Unable("a/bundle.yaml"); !strings.Contains(why, "ONNX") {
		t.Error(why)
	}
}

// A model is refused on a GPU whose operators are unknown and that this machine does not have.
func TestGPUElsewhere(t *testing.T) {
	m := gpuModels{childModels: &childModels{prepared: t.TempDir(), database: t.TempDir() + "/operators.jsonl"}, inventory: func() gpu.Inventory { return gpu.Inventory{} }}
	t.Setenv(commandEnv, "1")
	made, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := made.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	_, err = m.OnDevice(t.Context(), file, "NVIDIA T4, driver 1", 4, 0)
	if err == nil || !strings.Contains(err.Error(), "this machine has no NVIDIA T4, driver 1") || !strings.Contains(err.Error(), "no operators") {
		t.Errorf("%v", err)
	}
}
