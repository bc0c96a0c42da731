package peers

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each setting has its own address, each server has the settings with its number of
// workers, and every payload has a way.
func TestGrids(t *testing.T) {
	for _, p := range all {
		names, settings := map[string]bool{}, 0
		for _, g := range p.groups(50 * time.Millisecond) {
			for _, x := range g {
				if names[x.Name] {
					t.Errorf("%s has two settings %s", p.Name, x.Name)
				}
				if p.restarts && x.Workers != g[0].Workers {
					t.Errorf("%s: one server has %d and %d workers", p.Name, x.Workers, g[0].Workers)
				}
				if x.MaxBatch < 1 || x.Delay < 0 || x.Delay > 50*time.Millisecond {
					t.Errorf("%s: %+v", p.Name, x)
				}
				names[x.Name] = true
				settings++
			}
		}
		if settings < 2 {
			t.Errorf("%s has %d settings", p.Name, settings)
		}
		for _, payload := range []Payload{Binary, JSON} {
			if len(p.ways[payload]) == 0 {
				t.Errorf("%s takes no %s", p.Name, payload)
			}
		}
	}
	knobs := map[string]int{}
	for _, p := range all {
		knobs[p.Name] = p.knobs(50 * time.Millisecond)
	}
	want := map[string]int{"mlserver": 3, "bentoml": 4, "ray": 2, "kserve": 2, "litserve": 4, "triton": 4}
	if !maps.Equal(knobs, want) {
		t.Errorf("a user must find %v settings, not %v", knobs, want)
	}
	if got, err := choose([]string{"ray", "triton"}); err != nil || len(got) != 2 || got[0].Name != "ray" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := choose([]string{"torchserve"}); err == nil || !strings.Contains(err.Error(), "the peers are mlserver, bentoml, ray, kserve, litserve, triton") {
		t.Errorf("%v", err)
	}
}

// All peers have the same ONNX Runtime as the provider.
func TestRequirements(t *testing.T) {
	for _, p := range all {
		text, err := services.ReadFile("services/" + p.Name + ".txt")
		if err != nil || !strings.Contains(string(text), "\nonnxruntime=="+onnxruntime.LibraryVersion+"\n") {
			t.Errorf("%s: %q, %v; ours is %s", p.Name, text, err, onnxruntime.LibraryVersion)
		}
	}
}

// On a GPU both have the libraries that the provider's images have.
func TestRequirementsOnGPU(t *testing.T) {
	ours, err := os.ReadFile("../../templates/onnx-infer/requirements/cuda.txt")
	if err != nil {
		t.Fatal(err)
	}
	text, err := services.ReadFile("services/" + onGPU.Name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	pins := 0
	for line := range strings.Lines(string(ours)) {
		if pin, _, found := strings.Cut(line, " --hash"); found {
			pins++
			if !strings.Contains(string(text), "\n"+pin+"\n") {
				t.Errorf("Triton has no %s", pin)
			}
		}
	}
	if pins == 0 {
		t.Error("the provider's requirements have no versions")
	}
}

func TestTritonConfig(t *testing.T) {
	s := &site{output: "y", inputs: []tensor.Tensor{{Name: "x", Type: tensor.Int64, Shape: []int64{1, 2, 3}}}}
	want := `backend: "python"
max_batch_size: 32
input { name: "x" data_type: TYPE_INT64 dims: [ 2, 3 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
instance_group { count: 2 kind: KIND_CPU }
dynamic_batching { max_queue_delay_microseconds: 1000 }
`
	if got := s.tritonConfig(setting(32, time.Millisecond, 2)); got != want {
		t.Errorf("%s", got)
	}
	s.gpu = "GPU-1"
	onGPU := strings.Replace(want, "kind: KIND_CPU", "kind: KIND_GPU gpus: [ 0 ]", 1)
	onGPU = strings.Replace(onGPU, "max_queue", "preferred_batch_size: [ 16 ] max_queue", 1)
	if got := s.tritonConfig(Setting{MaxBatch: 32, Delay: time.Millisecond, Workers: 2, Preferred: 16}); got != onGPU {
		t.Errorf("%s", got)
	}
	if got := s.tritonConfig(setting(1, 0, 1)); strings.Contains(got, "dynamic_batching") {
		t.Errorf("%s", got)
	}
}

// Servers get all of their files.
func TestLayOut(t *testing.T) {
	s := &site{dir: t.TempDir(), model: "m.onnx", output: "y", inputs: []tensor.Tensor{vector("x", 1)}, settings: []Setting{setting(32, time.Millisecond, 0), setting(1, 0, 0)}, http: 1, grpc: 2}
	if _, err := startMLServer(s); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "b32d1w0", "model-settings.json"))
	if err != nil || !strings.Contains(string(text), `"max_batch_time": 0.001`) {
		t.Errorf("%s, %v", text, err)
	}
	file, err := s.describe()
	if err != nil {
		t.Fatal(err)
	}
	if text, err = os.ReadFile(file); err != nil || !strings.Contains(string(text), `"dtype": "float32"`) {
		t.Errorf("%s, %v", text, err)
	}
	s.inputs[0].Type = "BYTES"
	if _, err := s.describe(); err == nil || !strings.Contains(err.Error(), `input "x" has type BYTES`) {
		t.Errorf("%v", err)
	}
}
