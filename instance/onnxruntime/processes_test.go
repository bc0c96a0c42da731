package onnxruntime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// helperEnv is the variable by which a test starts itself as another process.
const helperEnv = "FAAS_INFER_TEST_HELPER"

// helper starts this test binary to run one test function and returns its
// first line of output.
func helper(t *testing.T, test, argument string) (line string, pid int) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	c.Env = append(os.Environ(), helperEnv+"="+argument)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		io.Copy(io.Discard, out)
		if err := c.Wait(); err != nil {
			t.Errorf("helper: %v", err)
		}
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "helper: "); ok {
			return rest, c.Process.Pid
		}
	}
	t.Fatal("the helper said nothing")
	return "", 0
}

// TestWeightsAreShared: instances in processes of their own have one copy of
// the weights between them. Unprepared, each has its own, and more.
func TestWeightsAreShared(t *testing.T) {
	if argument := os.Getenv(helperEnv); argument != "" {
		o := Options{Prepared: argument}
		if strings.HasSuffix(argument, ".onnx") {
			o = Options{Model: argument}
		}
		e := mustOpen(t, o)
		if _, err := e.Warm(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		fmt.Println("helper:", e.LoadTime().Seconds())
		io.Copy(io.Discard, os.Stdin)
		return
	}
	path := zooFile(t, "mnist")
	p, err := Prepare(path, t.TempDir(), PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	type process struct {
		load   float64
		memory instance.Memory
	}
	start := func(argument string) (load float64, pid int) {
		line, pid := helper(t, "TestWeightsAreShared", argument)
		if load, err = strconv.ParseFloat(line, 64); err != nil {
			t.Fatal(err)
		}
		return load, pid
	}
	var pids [4]int
	var loads [4]float64
	for i, argument := range []string{path, path, p.Dir, p.Dir} {
		loads[i], pids[i] = start(argument)
	}
	var processes [4]process
	for i, pid := range pids {
		m, err := instance.ReadMemory(pid)
		if err != nil {
			t.Fatal(err)
		}
		processes[i] = process{loads[i], m}
		t.Logf("%s: load %.1f ms, resident %d KiB, proportional %d KiB, anonymous %d KiB",
			[]string{"plain", "plain again", "prepared", "prepared again"}[i], 1e3*loads[i], m.Resident>>10, m.Proportional>>10, m.Anonymous>>10)
	}
	// The model has 12.5 MiB of weights.
	const weights = 12 << 20
	if saved := processes[1].memory.Anonymous - processes[3].memory.Anonymous; saved < weights {
		t.Errorf("a prepared instance saves %d KiB of its own memory, want at least the weights", saved>>10)
	}
	// A busy machine makes any load slower, so the least of several counts.
	plain, prepared := processes[1].load, processes[3].load
	for try := 0; try < 8 && prepared >= plain; try++ {
		load, _ := start(path)
		plain = min(plain, load)
		load, _ = start(p.Dir)
		prepared = min(prepared, load)
	}
	if prepared >= plain {
		t.Errorf("the prepared model loads in %v s, the model itself in %v", prepared, plain)
	}
}

// TestMemoryLimit checks that a batch above the memory limit is an error and the instance
// serves the next one.
func TestMemoryLimit(t *testing.T) {
	if argument := os.Getenv(helperEnv); argument != "" {
		e := mustOpen(t, Options{Model: argument, MemoryLimit: 64 << 20})
		_, large := e.Warm(context.Background(), 2048)
		_, small := e.Warm(context.Background(), 1)
		fmt.Printf("helper: large: %v; small: %v\n", strings.ReplaceAll(fmt.Sprint(large), "\n", " "), small)
		return
	}
	line, _ := helper(t, "TestMemoryLimit", zooFile(t, "mnist"))
	if !strings.Contains(line, "large: the request needs more memory than the instance has") || !strings.Contains(line, "small: <nil>") {
		t.Errorf("got %s", line)
	}
}

// A request of 100,000 tokens for a model that compares each with each gets an error of its own, and the
// next request is answered.
func TestVastRequest(t *testing.T) {
	if argument := os.Getenv(helperEnv); argument != "" {
		e := mustOpen(t, Options{Model: argument, MemoryLimit: 64 << 20})
		run := func(tokens int64) error {
			_, err := e.Run(context.Background(), 1, []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1, tokens}, Data: make([]byte, 4*tokens)}})
			return err
		}
		vast := run(100_000)
		status := 0
		if wrong := (*InputError)(nil); errors.As(vast, &wrong) {
			status = wrong.HTTPStatus()
		}
		fmt.Printf("helper: vast: %d; small: %v\n", status, run(100))
		return
	}
	line, _ := helper(t, "TestVastRequest", modelFile(t, `
node { op_type: "Unsqueeze" input: "x" input: "last" output: "column" }
node { op_type: "Unsqueeze" input: "x" input: "middle" output: "row" }
node { op_type: "MatMul" input: "column" input: "row" output: "each" }
node { op_type: "ReduceMax" input: "each" output: "y" attribute { name: "axes" type: INTS ints: 2 } attribute { name: "keepdims" type: INT i: 0 } }
initializer { name: "last" data_type: 7 dims: 1 int64_data: 2 }
initializer { name: "middle" data_type: 7 dims: 1 int64_data: 1 }`+value("input", "x", float, "n", "s")+value("output", "y", float, "n", "s")))
	if line != "vast: 413; small: <nil>" {
		t.Errorf("got %s", line)
	}
}
