package profile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/e2e/dgx"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
)

// onGPU is the CPU's engine as a GPU on which a run takes the same time on any share.
type onGPU struct{ *onnxruntime.Engine }

func (e onGPU) Prepare(ctx context.Context, rows int, inputs []tensor.Tensor) error {
	_, err := e.Run(ctx, rows, inputs)
	return err
}
func (e onGPU) Repeat(context.Context) (profiler.DeviceTimes, error) { return e.Times(), nil }

func (onGPU) Times() profiler.DeviceTimes {
	return profiler.DeviceTimes{In: 2, Compute: 30, Out: 1}
}

func openOnGPU(file string, _ int) (measuring.DeviceEngine, error) {
	e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
	return onGPU{e}, err
}

// Operators that were measured on shares of a GPU predict a model on these.
func TestPredictOnDevice(t *testing.T) {
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	const name = "GPU, driver 1"
	dir := t.TempDir()
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	file, path := filepath.Join(dir, "mnist.onnx"), filepath.Join(dir, "operators.jsonl")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	o := PredictOptions{MaxBatch: 8, GPUName: name, Database: path}
	if _, err := o.onDevice(t.Context(), file); err == nil || !strings.HasPrefix(err.Error(), Unpredictable) {
		t.Errorf("without rows: %v", err)
	}
	graphs, err := deviceGraphs(t.Context(), []string{file}, dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, percent := range []int{20, 100} {
		child := shares.OperatorsChild{
			Graphs: graphs, Batches: []int{1, 8}, Percent: percent, Machine: name, Known: path, Open: openOnGPU, Log: io.Discard, CPU: func() time.Duration { return 0 },
		}
		found, err := child.Measure(t.Context())
		if err != nil || len(found.Unmeasured) > 0 {
			t.Fatal(found.Unmeasured, err)
		}
		keep(t, path, found.Rows)
		again, err := child.Measure(t.Context())
		if err != nil || len(again.Rows) >= len(found.Rows) {
			t.Errorf("%d: %d rows again, of %d, %v", i, len(again.Rows), len(found.Rows), err)
		}
	}
	other := o
	other.GPUName = "GPU, driver 2"
	if _, err := other.onDevice(t.Context(), file); err == nil || !strings.HasSuffix(err.Error(), "no operators of GPU, driver 2, only of GPU, driver 1") {
		t.Errorf("of another driver: %v", err)
	}
	o.Out, o.JSON = filepath.Join(dir, "profile.json"), true
	if err := o.run(context.Background(), file, new(strings.Builder)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	var got profiler.Measured
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	p := got.Profile
	if err := p.Validate(); err != nil || p.Engine != shares.EngineName() || p.Machine != name || p.Model == "" || p.Memory == 0 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, g := range []int{20, 50, 100} {
		if table := p.Table(8, profiler.Share{CPU: 1000, GPU: g}); len(table) != 8 || p.DeviceMemory(8) < contextBytes {
			t.Errorf("on %d %%: %v, %d bytes", g, table, p.DeviceMemory(8))
		}
	}
	if len(p.DeviceCandidates(profiler.Bounds{MaxBatch: 8})) != 9*4 {
		t.Errorf("%v", p.DeviceCandidates(profiler.Bounds{MaxBatch: 8}))
	}
}

func keep(t *testing.T, path string, rows []database.Row) {
	t.Helper()
	f, err := operators.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Append(rows...); err != nil {
		t.Fatal(err)
	}
}

// Wrong flags are refused with their names.
func TestDeviceFlags(t *testing.T) {
	for says, o := range map[string]DeviceOptions{
		"--device": {Device: "gpu", Shares: []int{1}},
		"--shares": {Device: deviceCUDA, Shares: []int{0, 50}},
		"101":      {Device: deviceCUDA, Shares: []int{101}},
	} {
		if err := o.check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	o := DeviceOptions{Device: deviceCUDA, Shares: []int{100, 20, 20}}
	if err := o.check(); err != nil || len(o.Shares) != 2 || o.Shares[0] != 20 {
		t.Errorf("%+v, %v", o, err)
	}
}

// Flags for a GPU without --device cuda are refused, instead of measuring the CPU.
func TestFlagsOfTheOtherDevice(t *testing.T) {
	for _, device := range []string{"", "cuda"} {
		c, o := &cobra.Command{}, DeviceOptions{}
		o.flags(c)
		arguments := []string{"--shares", "20", "--mps-pipe", "/run/mps"}
		if device != "" {
			arguments = append(arguments, "--device", device)
		}
		if err := c.ParseFlags(arguments); err != nil {
			t.Fatal(err)
		}
		err := o.check()
		if refused := err != nil && err.Error() == "--shares, --mps-pipe: for a GPU only; give --device cuda, too, or leave it out"; refused != (device == "") {
			t.Errorf("--device %q: %v", device, err)
		}
	}
}

// A directory or a name of the zoo is no file, and the error says what to give.
func TestNoFile(t *testing.T) {
	for file, want := range map[string]string{"mnist": "faas-infer model make mnist", t.TempDir(): "is a directory; give the ONNX file"} {
		if err := checkFile(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := checkFile("other.onnx"); err != nil {
		t.Error(err) // Whoever opens it says that it is not there.
	}
}

// A bundle in Python is measured with a whole GPU, which its process sees and no other. Its profile has
// that one share, with all of the memory.
func TestWholeGPUForPython(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	m := dgx.New()
	uuid, _ := m.Device(1).GetUUID()
	manifest := filepath.Join(t.TempDir(), bundle.ManifestFile)
	for name, text := range map[string]string{
		manifest: "name: double\nengine: python\nhandler: handler.py\n",
		filepath.Join(filepath.Dir(manifest), "handler.py"): fmt.Sprintf(`import os
assert os.environ["CUDA_VISIBLE_DEVICES"] == %q and os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true", os.environ
inputs = {"x": ("float32", [3])}
def handle(batch): return [{"y": 2 * r["x"]} for r in batch]
`, uuid),
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{MaxBatch: 2, Threads: 4, Sketch: true, Prepared: t.TempDir(), DeviceOptions: DeviceOptions{Device: deviceCUDA, GPU: "1", Shares: []int{50, 100}, library: m}}
	if _, err := o.measureDevice(t.Context(), manifest); err == nil || !strings.Contains(err.Error(), "--shares 100") {
		t.Errorf("%v", err)
	}
	o.Shares = []int{100}
	got, err := o.measureDevice(t.Context(), manifest)
	if err != nil {
		t.Fatal(err)
	}
	p := got.Profile
	if p.Machine != "Mock NVIDIA A100-SXM4-40GB, driver 550.54.15" || !slices.Equal(p.DeviceShares(), []int{100}) || len(p.Threads()) != 0 || p.DeviceMemory(2) < 39<<30 {
		t.Errorf("%+v", p)
	}
}
