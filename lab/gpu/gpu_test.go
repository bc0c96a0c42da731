package gpu

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device/dgx"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// worker is an environment variable that makes the test's binary work like "bench
// gpu-worker".
const worker = "FAAS_INFER_GPU_WORKER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(worker); kind != "" {
		if err := workAs(kind); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// workAs answers like a worker on an ideal GPU: it computes in proportion to its share.
func workAs(kind string) error {
	percent := map[string]float64{"10": 10, "30": 30, "70": 70, "100": 100}[os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")]
	model := strings.Contains(strings.Join(os.Args, " "), "--model")
	switch {
	case os.Getenv("CUDA_VISIBLE_DEVICES") == "" || os.Getenv("CUDA_MPS_PIPE_DIRECTORY") == "":
		return errors.New("no share was given")
	case kind == "broken" || kind == "modelless" && model:
		return errors.New("this engine has no CUDA")
	}
	os.Stdout.WriteString(ready + "\n")
	if _, err := io.ReadFull(os.Stdin, make([]byte, 3)); err != nil {
		return err
	}
	o := Outcome{SMs: int(1.08 * percent), GFLOPS: 195 * percent, Runs: 10, Median: 1}
	if model {
		o = Outcome{Runs: 10, Median: 1000 / percent, P99: 1100 / percent}
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

func options(t *testing.T, kind string) Options {
	t.Helper()
	t.Setenv(worker, kind)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	control, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Self: self, Library: dgx.New(), Device: "3", MPS: control, Models: []string{"mnist"}, Batch: 4,
		Shares: []int{10, 100}, Each: time.Second, Log: t.Output(),
	}
}

func results(t *testing.T, o Options) map[string]float64 {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, x := range r.Results {
		all[x.Name] = x.Value
	}
	return all
}

// On an ideal GPU, shares have their nominal effect.
func TestRun(t *testing.T) {
	got := results(t, options(t, "ideal"))
	for name, want := range map[string]float64{
		"gpus": 8, "sms": 108, "share_30.sms": 32, "share_30.alone_gflops": 5850, "share_70.together_part": 0.7,
		"share_30.kept": 1, "together_of_whole": 1, "mnist.share_10.median_ms": 100, "mnist.share_10.slower": 10, "models_measured": 1,
	} {
		if x, ok := got[name]; !ok || x < want-1e-9 || x > want+1e-9 {
			t.Errorf("%s is %v, want %v", name, x, want)
		}
	}
}

// With an engine without CUDA, only the models are left out.
func TestWithoutCUDA(t *testing.T) {
	got := results(t, options(t, "modelless"))
	if n, ok := got["models_measured"]; !ok || n != 0 || got["share_30.alone_gflops"] == 0 {
		t.Errorf("%v", got)
	}
}

func TestRefusals(t *testing.T) {
	o := options(t, "broken")
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "multiply-adds on 30 % of the GPU: this engine has no CUDA") {
		t.Errorf("a worker that fails: %v", err)
	}
	o.Device = "8"
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--device") {
		t.Errorf("a GPU that is not there: %v", err)
	}
	o.Device = "3"
	o.Library.(*dgx.Machine).Devices[3].SetMigMode(nvml.DEVICE_MIG_ENABLE)
	if _, err := Run(t.Context(), o); !errors.Is(err, gpu.ErrNone) || !strings.Contains(err.Error(), "MIG") {
		t.Errorf("a GPU with MIG: %v", err)
	}
	o.Library.(*dgx.Machine).InitFunc = func() nvml.Return { return nvml.ERROR_LIBRARY_NOT_FOUND }
	if _, err := Run(t.Context(), o); !errors.Is(err, gpu.ErrNone) || !strings.Contains(err.Error(), "read the GPUs") {
		t.Errorf("no GPU: %v", err)
	}
}

// The code that runs models on a GPU also runs one on the CPU.
func TestWorkOnCPU(t *testing.T) {
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	w := Work{Model: file, Batch: 4, Each: 50 * time.Millisecond, CPU: true}
	if err := w.Do(t.Context(), strings.NewReader("go\n"), &out); err != nil {
		t.Fatal(err)
	}
	said, rest, _ := strings.Cut(out.String(), "\n")
	var o Outcome
	if err := json.Unmarshal([]byte(rest), &o); err != nil || said != ready || o.Runs < 1 || o.Median <= 0 || o.P99 < o.Median {
		t.Errorf("%q, %v", out.String(), err)
	}
	w.CPU = false
	if err := w.Do(t.Context(), strings.NewReader("go\n"), io.Discard); err != nil && !strings.Contains(err.Error(), "built with CUDA") {
		t.Errorf("on a GPU: %v", err)
	}
	if err := (Work{Each: time.Millisecond}).Do(t.Context(), strings.NewReader("go\n"), io.Discard); err != nil && !errors.Is(err, ErrNoDriver) {
		t.Errorf("the kernel: %v", err)
	}
}
