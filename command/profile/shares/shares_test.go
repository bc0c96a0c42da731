package shares

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/e2e/dgx"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/instance/cuda"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
)

// worker is an environment variable that makes the test's binary work like "profile share".
const worker = "FAAS_INFER_SHARE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(worker) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := work(); err != nil {
		os.Stderr.WriteString("a warning\n" + err.Error() + "\n")
		os.Exit(1)
	}
}

// work answers like a child on an ideal GPU: 100 ms on 1 %.
func work() error {
	percent, err := strconv.Atoi(os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"))
	arguments := strings.Join(os.Args[1:], " ")
	whole := os.Getenv("CUDA_MPS_PIPE_DIRECTORY") == "" && err != nil
	switch {
	case os.Getenv("CUDA_VISIBLE_DEVICES") == "":
		return errors.New("no GPU was given")
	case whole:
		percent = 100
	case os.Getenv(worker) == "broken":
		return errors.New("CUDA error 999")
	}
	if !strings.Contains(arguments, "--gpu-share "+strconv.Itoa(percent)+" ") {
		return errors.New("told another share: " + arguments)
	}
	r := Result{Memory: int64(percent), Note: strconv.FormatBool(whole)}
	for _, b := range []int{1, 8} {
		m := profiler.Measurement{Batch: b, Threads: 1, GPU: percent, Median: 1e5 / float64(percent), P95: 1e5 / float64(percent), Runs: 1}
		if strings.Contains(arguments, "--memory") {
			m.DeviceMemory = int64(b) << 20
		}
		r.Measurements = append(r.Measurements, m)
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func options(t *testing.T, kind string) Options {
	t.Helper()
	t.Setenv(worker, kind)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mps, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return Options{GPU: "1", Library: dgx.New(), MPS: mps, Self: self}
}

// Every share is measured in a process that has it, the memory on the largest, and the daemon
// is gone afterwards.
func TestModel(t *testing.T) {
	c, err := Open(t.Context(), options(t, "ideal"))
	if err != nil {
		t.Fatal(err)
	}
	pipes := c.inventory.PipeDirectory
	if got := c.Machine(); got != "Mock NVIDIA A100-SXM4-40GB, driver 550.54.15" {
		t.Error(got)
	}
	var done []int
	got, err := c.Model(t.Context(), Work{Model: "m", Shares: []int{20, 50, 100}, Batches: []int{1, 8}}, func(n, _ int) { done = append(done, n) })
	if err != nil || len(got.Measurements) != 6 || got.Memory != 100 || !slices.Equal(done, []int{0, 1, 2, 3}) {
		t.Fatalf("%+v, %v, %v", got, done, err)
	}
	p := profiler.Profile{Model: "m", Measurements: got.Measurements}
	if err := p.Validate(); err != nil || p.DeviceMemory(1) != 1<<20 || p.DeviceMemory(8) != 8<<20 || !slices.Equal(p.DeviceShares(), []int{20, 50, 100}) {
		t.Errorf("%v, %+v", err, p)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(pipes); err == nil {
		t.Error("the daemon's directory is left")
	}
}

// A daemon that runs already is used and left alone. A whole GPU needs none.
func TestWithoutOwnDaemon(t *testing.T) {
	o := options(t, "ideal")
	o.MPS = "/nonexistent"
	if _, err := Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--shares 100") {
		t.Errorf("without the program: %v", err)
	}
	o.Pipe = "/run/mps"
	c, err := Open(t.Context(), o)
	if err != nil || c.daemon != nil || c.inventory.PipeDirectory != "/run/mps" {
		t.Fatalf("%+v, %v", c, err)
	}
	o.Whole = true
	if c, err = Open(t.Context(), o); err != nil || !slices.Contains(c.Environment(100), "CUDA_MPS_PIPE_DIRECTORY=/run/mps") {
		t.Fatalf("%+v, %v", c, err)
	}
	o.Pipe = ""
	if c, err = Open(t.Context(), o); err != nil || c.daemon != nil {
		t.Fatal(err)
	}
	if got, err := c.Model(t.Context(), Work{Model: "m", Shares: []int{100}, Batches: []int{1}}, func(int, int) {}); err != nil || got.Note != "true" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	o := options(t, "broken")
	c, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Model(t.Context(), Work{Model: "m", Shares: []int{20, 100}, Batches: []int{1}}, func(int, int) {}); err == nil || err.Error() != "on 20 % of the GPU: CUDA error 999" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx, 20, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	o.GPU = "9"
	if _, err := Open(t.Context(), o); !errors.Is(err, gpu.ErrNone) {
		t.Errorf("%v", err)
	}
	s := dgx.New()
	s.Devices[1].SetMigMode(nvml.DEVICE_MIG_ENABLE)
	o.GPU, o.Library = "1", s
	if _, err := Open(t.Context(), o); !errors.Is(err, gpu.ErrNone) || !strings.Contains(err.Error(), "--shares 100") {
		t.Errorf("%v", err)
	}
}

// echo is an engine that answers at once.
type echo struct {
	rows, opened *[]int
	batches      []int
	lanes        map[int]int64
}

func (e echo) Run(_ context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if len(inputs) == 0 || inputs[0].Shape[0] != int64(rows) || !slices.Contains(e.batches, rows) {
		return nil, errors.New("wrong inputs")
	}
	*e.rows = append(*e.rows, rows)
	return nil, nil
}
func (e echo) Times() profiler.DeviceTimes { return profiler.DeviceTimes{In: 3, Out: 2} }
func (e echo) Memory() (int64, error)      { return int64(100 * slices.Max(e.batches)), nil }
func (e echo) Lanes() map[int]int64        { return e.lanes }
func (e echo) Note() string                { return "no graphs" }
func (e echo) Close() error                { return nil }

// A child measures each batch on inputs of its size. It takes the driver's figure of its own memory,
// otherwise that of all processes, otherwise the engine's, and says so. Batch sizes that share a session are opened alone for that.
func TestChild(t *testing.T) {
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		own, all int64
		lanes    map[int]int64
		opened   []int
		memory   []int64
		note     string
	}{
		{500, 1000, nil, []int{2, 1, 2}, []int64{1000, 1500}, "no graphs"},
		{0, 1000, nil, []int{2, 1, 2}, []int64{2000, 3000}, "no graphs" + fromAll},
		{10, 1000, nil, []int{2, 1, 2}, []int64{2000, 3000}, "no graphs" + fromAll}, // The engine alone holds more.
		{0, 0, nil, []int{2, 1, 2}, []int64{100, 200}, "no graphs" + fromEngine},
		{1000, 9000, map[int]int64{1: 200, 2: 300}, []int{2}, []int64{700, 1000}, "no graphs"},
	} {
		var rows, opened []int
		c := Child{
			Model: file, Batches: []int{1, 2}, Percent: 30, Memory: true,
			Held: func() Holding {
				n := int64(len(opened))
				return Holding{Own: k.own * n, OwnKnown: k.own > 0 && n > 0, All: k.all * n, AllKnown: k.all > 0}
			},
			Open: func(_ string, batches []int, _ bool) (Engine, error) {
				opened = append(opened, slices.Max(batches))
				return echo{&rows, &opened, batches, k.lanes}, nil
			},
			CPU: func() time.Duration { return 0 }, Peak: func() int64 { return 7 }, Log: io.Discard,
		}
		got, err := c.Measure(t.Context())
		if err != nil || len(got.Measurements) != 2 || got.Memory != 7 || got.Note != k.note || !slices.Equal(opened, k.opened) {
			t.Fatalf("%+v, opened %v, %v", got, opened, err)
		}
		for i, m := range got.Measurements {
			if m.Batch != i+1 || m.GPU != 30 || m.In != 3 || m.Out != 2 || m.DeviceMemory != k.memory[i] {
				t.Errorf("%+v, want %d bytes", m, k.memory[i])
			}
		}
	}
}

// Memory is that of one process, whether or not it is an MPS client, and whatever others hold.
func TestHeld(t *testing.T) {
	m := dgx.New()
	d := m.Device(1)
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{Used: 9000}, nvml.SUCCESS }
	var compute, clients []nvml.ProcessInfo
	state := nvml.SUCCESS
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return compute, state }
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return clients, state }
	uuid, _ := d.GetUUID()
	held := Held(m, uuid, 7)
	others := nvml.ProcessInfo{Pid: 8, UsedGpuMemory: 3000}
	for _, k := range []struct {
		compute, clients []nvml.ProcessInfo
		state            nvml.Return
		want             Holding
	}{
		{[]nvml.ProcessInfo{others}, nil, nvml.SUCCESS, Holding{All: 9000, AllKnown: true}},
		{[]nvml.ProcessInfo{others, {Pid: 7, UsedGpuMemory: 500}}, nil, nvml.SUCCESS, Holding{500, true, 9000, true}},
		{[]nvml.ProcessInfo{others}, []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 600}}, nvml.SUCCESS, Holding{600, true, 9000, true}},
		{[]nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 600}}, []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 600}}, nvml.SUCCESS, Holding{600, true, 9000, true}},
		{[]nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: math.MaxUint64}}, nil, nvml.SUCCESS, Holding{All: 9000, AllKnown: true}}, // NVML_VALUE_NOT_AVAILABLE
		{[]nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 600}}, nil, nvml.ERROR_NOT_SUPPORTED, Holding{All: 9000, AllKnown: true}},
	} {
		compute, clients, state = k.compute, k.clients, k.state
		if got := held(); got != k.want {
			t.Errorf("%+v, want %+v", got, k.want)
		}
	}
	m.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED }
	if got := held(); got != (Holding{}) {
		t.Errorf("%+v without a driver", got)
	}
}

// An instance has a lane of each size up to its batch. An unknown one is as the next larger.
func TestInstanceMemory(t *testing.T) {
	lanes := map[int]int64{1: 10, 3: 30, 8: 80}
	for batch, want := range map[int]int64{1: 510, 2: 540, 4: 620, 8: 700, 16: 780} {
		if got := instanceMemory(620, lanes, cuda.Buckets(batch)); got != want {
			t.Errorf("batches up to %d: %d, want %d", batch, got, want)
		}
	}
}

// sizing notes the shapes of its inputs.
type sizing struct {
	echo
	shapes *[][]int64
}

func (e sizing) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	*e.shapes = append(*e.shapes, inputs[0].Shape)
	return e.echo.Run(ctx, rows, inputs)
}

// A child measures with the sizes that it is told.
func TestChildrenMeasureWithTheGivenSizes(t *testing.T) {
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "identity.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	var rows, opened []int
	var shapes [][]int64
	c := Child{
		Model: file, Shapes: tensor.Shapes{"input": {1, 24}}, Batches: []int{2}, Percent: 30, Held: func() Holding { return Holding{} },
		Open: func(_ string, batches []int, _ bool) (Engine, error) {
			return sizing{echo{&rows, &opened, batches, nil}, &shapes}, nil
		},
		CPU: func() time.Duration { return 0 }, Peak: func() int64 { return 7 }, Log: io.Discard,
	}
	if _, err := c.Measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(shapes) == 0 || !slices.Equal(shapes[0], []int64{2, 24}) {
		t.Errorf("measured with %v", shapes)
	}
	c.Shapes = tensor.Shapes{"input": {1, 2, 3}}
	if _, err := c.Measure(t.Context()); err == nil {
		t.Error("measured with another rank")
	}
}
