package children

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// row is the declaration of a tensor of one number in each row.
const row = `type { tensor_type { elem_type: 1 shape { dim { dim_param: "n" } dim { dim_value: 1 } } } } `

// endless is a graph with a loop of 2^62 trips.
const endless = `
node { op_type: "Loop" input: "trips" input: "" input: "x" output: "y" attribute { name: "body" type: GRAPH g {
  name: "body"
  node { op_type: "Identity" input: "go" output: "on" }
  node { op_type: "Sin" input: "v" output: "w" }
  input { name: "i" type { tensor_type { elem_type: 7 shape {} } } }
  input { name: "go" type { tensor_type { elem_type: 9 shape {} } } }
  input { name: "v" ` + row + `}
  output { name: "on" type { tensor_type { elem_type: 9 shape {} } } }
  output { name: "w" ` + row + `}
} } }
initializer { name: "trips" data_type: 7 int64_data: 4611686018427387904 }`

// vast is a graph that needs 8 GiB for a row.
const vast = `
node { op_type: "Expand" input: "x" input: "shape" output: "wide" }
node { op_type: "Sin" input: "wide" output: "sin" }
node { op_type: "ReduceMax" input: "sin" output: "y" attribute { name: "axes" type: INTS ints: 1 } }
initializer { name: "shape" data_type: 7 dims: 2 int64_data: 1 int64_data: 2147483648 }`

// writeGraph writes a model of a graph in protobuf's text, from x to y.
func writeGraph(t *testing.T, nodes string) (file string) {
	t.Helper()
	p := new(onnxpb.ModelProto)
	text := `ir_version: 8 opset_import { version: 17 } graph { name: "bad" ` + nodes + ` input { name: "x" ` + row + `} output { name: "y" ` + row + `} }`
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	m, err := model.FromProto(p)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "bad.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}

// A model whose run does not end, and one that needs 8 GiB, are refused with a sentence, whatever the
// machine has. Nobody tries them again.
func TestHopelessModelsAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ graph, want string }{
		"endless": {endless, "one run with one request did not end within 5.01s of processor time"},
		"vast":    {vast, "the model needs more than "},
	} {
		m := sizedModels{&Models{Config: Config{Prepared: t.TempDir()}}, latency.Sizes{Objective: time.Millisecond}}
		began := time.Now()
		_, err := m.Prepare(t.Context(), writeGraph(t, c.graph))
		if !errors.Is(err, latency.ErrPermanent) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		t.Logf("%s after %v: %v", name, time.Since(began).Round(time.Millisecond), err)
	}
}

// A model that uses all the processor time that its child may use is hopeless, also if no run can be
// interrupted. A child that is stopped is not the model's fault.
func TestChildrenAreBounded(t *testing.T) {
	file := writeGraph(t, endless)
	m := &Models{Config: Config{Prepared: t.TempDir()}}
	prepare := []string{"instance", "prepare", "--model", file, "--cache", m.Prepared}
	b := bounds{Bounds: process.Bounds{Memory: baseMemory, CPU: 2 * time.Second}, time: time.Hour}
	if _, err := m.runBound(t.Context(), Foreground, b, nil, prepare...); !errors.Is(err, latency.ErrPermanent) || !strings.Contains(err.Error(), "takes too long") {
		t.Errorf("without end: %v", err)
	}
	m.Place = func(pid int, _ bool) error { return syscall.Kill(pid, syscall.SIGSTOP) }
	b.CPU, b.time = time.Hour, 100*time.Millisecond
	if _, err := m.runBound(t.Context(), Foreground, b, nil, prepare...); errors.Is(err, latency.ErrPermanent) || err == nil || !strings.Contains(err.Error(), "did not end within") {
		t.Errorf("stopped: %v", err)
	}
}

// What a child prints is bounded, and of its complaints the beginning and the end are kept.
func TestOutputIsBounded(t *testing.T) {
	o := &output{max: 10}
	if _, err := o.Write(make([]byte, 10)); err != nil || o.over {
		t.Errorf("10 bytes of 10: %v", err)
	}
	if _, err := o.Write(make([]byte, 1)); err == nil || !o.over || len(o.text) != 10 {
		t.Errorf("one more: %v", err)
	}
	e, line := new(ends), strings.Repeat("x", 1023)+"\n"
	written := 0
	for _, text := range append(append([]string{"panic: first\n"}, make([]string, 1<<10)...), "last") {
		if text == "" {
			text = line
		}
		n, err := e.Write([]byte(text))
		if err != nil || n != len(text) {
			t.Fatal(n, err)
		}
		written += n
	}
	if got := e.String(); len(got) > 3*keptComplaint || written < 1<<20 || !strings.HasPrefix(got, "panic: first\n") || !strings.HasSuffix(got, "last") {
		t.Errorf("%d bytes of %d are kept", len(got), written)
	}
}

// A handler in Python that needs 8 GiB is refused with a sentence, also if a warm process forks it.
func TestVastHandlersAreRefused(t *testing.T) {
	warm, err := python.NewWarmth(t.TempDir(), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer warm.Close()
	for _, w := range []*python.Warmth{nil, warm} {
		m := sizedModels{&Models{Config: Config{Prepared: t.TempDir(), Warm: w}}, latency.Sizes{Objective: time.Second, Memory: 1 << 30}}
		_, _, err := m.Sketch(t.Context(), pythonBundle(t, doubling+"\nvast = bytearray(8 << 30)\n"), 1, time.Second)
		if !errors.Is(err, latency.ErrPermanent) || !strings.Contains(err.Error(), fmt.Sprintf("the model needs more than %d MiB", memoryOf(1<<30)>>20)) || !strings.Contains(err.Error(), "state limits.memory") {
			t.Errorf("warm: %v: %v", w != nil, err)
		}
	}
}

// What Python or a model server runs may take what an ONNX model may, and what is free if the deployment
// states nothing.
func TestBoundsOfBundles(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		limit, free, want int64
		passing           bool
	}{{0, gib, memoryOf(0), false}, {0, 40 * gib, 40 * gib, true}, {gib, 40 * gib, memoryOf(gib), false}, {16 * gib, gib, memoryOf(16 * gib), false}} {
		b := bundleBounds(c.limit, c.free)
		if b.Memory != c.want || b.free != c.passing || b.time == 0 {
			t.Errorf("limits.memory %d, %d free: %+v", c.limit, c.free, b)
		}
		const said = "handler.py: MemoryError"
		if err := b.explain(errors.New("exit status 1"), "`profile model`", 0, said); errors.Is(err, latency.ErrPermanent) == c.passing {
			t.Errorf("%+v: %v", b, err)
		}
	}
	if free := freeMemory(); free <= 0 {
		t.Errorf("%d bytes are free", free)
	}
}

// What a child says of a model that takes a minute a run is the end of it: the deployment is refused, and
// nobody tries again.
func TestLongRunsAreRefused(t *testing.T) {
	b := boundsOf(Foreground, 100*time.Millisecond, 0, 0)
	said := fmt.Sprintf("faas-infer: %v: one run with one request did not end within 6s of processor time", onnxruntime.ErrTooLong)
	err := b.explain(exec.Command("false").Run(), "`instance prepare`", 7*time.Second, said)
	if !errors.Is(err, latency.ErrPermanent) || Passing(err) {
		t.Errorf("%v: permanent %v, passing %v", err, errors.Is(err, latency.ErrPermanent), Passing(err))
	}
}

// The bounds follow the objective, the model's size and what the deployment says, and so does the
// time that a run may take.
func TestBounds(t *testing.T) {
	least := boundsOf(Foreground, 100*time.Millisecond, 0, 0)
	for what, b := range map[string]bounds{
		"objective": boundsOf(Foreground, time.Minute, 0, 0), "unknown objective": boundsOf(Foreground, 0, 0, 0),
		"size": boundsOf(Foreground, 100*time.Millisecond, 1<<30, 0), "background": boundsOf(Background, 100*time.Millisecond, 0, 0),
	} {
		if b.CPU <= least.CPU || b.time <= b.CPU || b.Memory < least.Memory {
			t.Errorf("a larger %s: %+v instead of %+v", what, b, least)
		}
	}
	if b := boundsOf(Foreground, time.Second, 0, 16<<30); b.Memory < 32<<30 {
		t.Errorf("limits.memory of 16 GiB: %d MiB", b.Memory>>20)
	}
	if least.Memory >= 8<<30 {
		t.Errorf("a small model may take %d MiB", least.Memory>>20)
	}
	if got := maxRun(100 * time.Millisecond); got != 6*time.Second {
		t.Errorf("a run may take %v", got)
	}
}
