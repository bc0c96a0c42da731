package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/faas-infer/faas-infer/command/profile/shares"
	"github.com/faas-infer/faas-infer/e2e/dgx"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/lab/peers"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
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
	percent, _ := strconv.ParseFloat(os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), 64)
	model := strings.Contains(strings.Join(os.Args, " "), "--model")
	switch {
	case os.Getenv("CUDA_VISIBLE_DEVICES") == "" || os.Getenv("CUDA_MPS_PIPE_DIRECTORY") == "":
		return errors.New("no share was given")
	case kind == "broken" || kind == "modelless" && model:
		return errors.New("this engine has no CUDA")
	case os.Args[1] == "profile":
		var r shares.Result
		for _, batch := range []int{1, 4, 16} {
			t := 1e5 * (0.5 + float64(batch)/2) / percent
			r.Measurements = append(r.Measurements, profiler.Measurement{Batch: batch, Threads: 1, GPU: int(percent), Median: t, P95: t, Runs: 9})
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	os.Stdout.WriteString(ready + "\n")
	if _, err := io.ReadFull(os.Stdin, make([]byte, 3)); err != nil {
		return err
	}
	o := Outcome{SMs: int(1.08 * percent), GFLOPS: 195 * percent, Runs: 10, Median: 1}
	if model {
		o = Outcome{Runs: 10, Within: 10, Median: 1000 / percent, P99: 1100 / percent}
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
		Self: self, Program: self, Library: dgx.New(), Device: "3", MPS: control, Parts: Parts(), Models: []string{"mnist"}, Batch: 4,
		Small: []string{"mnist", "dssm"}, SLO: 100 * time.Millisecond, Shares: []int{10, 30, 100}, Each: time.Second, Log: t.Output(), Settings: 3,
		Compare: func(_ context.Context, o peers.OnGPU) (peers.Compared, error) {
			if !strings.HasPrefix(o.Device, "GPU-") || o.Model != "mnist" || o.SLO != 100*time.Millisecond || o.Settings != 3 {
				return peers.Compared{}, fmt.Errorf("compares %+v", o)
			}
			return peers.Compared{Ours: 300, Triton: 200, Best: "2 instances", Tried: 3}, nil
		},
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
		"share_30.kept": 1, "together_of_whole": 1, "mnist.share_10.batch_1.median_ms": 10, "share.error_pct": 0, "coexist.slowdown": 1,
		// In turn 1,882 each of the whole GPU, in batches of 16 of 8.5 ms; at once 10 batches of 16 a second.
		"shared.dssm.in_turn_rps": 16 / 0.0085 / 2, "shared.dssm.rps": 160, "rps_ratio.shared_over_whole": 160 / (16 / 0.0085 / 2),
		"triton.mnist.ours_rps": 300, "triton.mnist.rps": 200, "rps_ratio.over_triton": 1.5,
	} {
		if x, ok := got[name]; !ok || x < want-1e-9 || x > want+1e-9 {
			t.Errorf("%s is %v, want %v", name, x, want)
		}
	}
}

// The error of an engine without CUDA says which part failed.
func TestWithoutCUDA(t *testing.T) {
	if _, err := Run(t.Context(), options(t, "modelless")); err == nil || !strings.Contains(err.Error(), "shares: mnist: on 10 % of the GPU: this engine has no CUDA") {
		t.Errorf("%v", err)
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
	if err := w.Do(t.Context(), strings.NewReader("go\n"), io.Discard); err != nil && !errors.Is(err, cuda.ErrDevice) {
		t.Errorf("on a GPU: %v", err)
	}
	if err := (Work{Each: time.Millisecond}).Do(t.Context(), strings.NewReader("go\n"), io.Discard); err != nil && !errors.Is(err, cuda.ErrDevice) {
		t.Errorf("the kernel: %v", err)
	}
}

// What the provider reached is reported although Triton fails.
func TestTritonFails(t *testing.T) {
	o := options(t, "ideal")
	o.Parts = []string{"triton"}
	o.Compare = func(context.Context, peers.OnGPU) (peers.Compared, error) {
		return peers.Compared{Ours: 300}, errors.New("Triton does not start")
	}
	r, err := Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "Triton does not start") {
		t.Errorf("%v", err)
	}
	for _, x := range r.Results {
		if x.Name == "triton.mnist.ours_rps" && x.Value == 300 {
			return
		}
	}
	t.Errorf("%+v", r.Results)
}
