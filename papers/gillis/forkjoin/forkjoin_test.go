package forkjoin_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/forkjoin"
)

var _ instance.Engine = (*forkjoin.Engine)(nil)

func TestMain(m *testing.M) {
	if err := onnxruntime.Load(""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// worker calls a worker and may fail.
type worker struct {
	forkjoin.Worker
	calls *atomic.Int64
	fail  func(ctx context.Context) error
}

func (w *worker) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	w.calls.Add(1)
	if w.fail != nil {
		if err := w.fail(ctx); err != nil {
			return nil, err
		}
	}
	return w.Worker.Run(ctx, rows, inputs)
}

// master cuts mnist: its convolutions by height, then the rest whole, then the last layers.
func master(t *testing.T) (*forkjoin.Engine, *onnxruntime.Engine, [][]*worker) {
	t.Helper()
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.onnx")
	if err := m.WriteFile(whole); err != nil {
		t.Fatal(err)
	}
	c, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	var rounds []forkjoin.Round
	var workers [][]*worker
	for _, span := range [][2]int{{0, 2}, {2, 3}, {3, len(c.Layers())}} {
		g, err := c.Group(span[0], span[1])
		if err != nil {
			t.Fatal(err)
		}
		how := g.Whole()
		if span[0] == 0 {
			if how, err = g.Grid(3, 1); err != nil {
				t.Fatal(err)
			}
		}
		parts, err := g.Cut(how)
		if err != nil {
			t.Fatal(err)
		}
		var round forkjoin.Round
		var of []*worker
		for i, p := range parts {
			w := &worker{Worker: open(t, m, p, filepath.Join(dir, fmt.Sprintf("%d-%d", span[0], i))), calls: new(atomic.Int64)}
			of = append(of, w)
			round = append(round, forkjoin.Part{Inputs: p.Inputs(), Outputs: p.Outputs(), Worker: w, Own: i == 0})
		}
		rounds, workers = append(rounds, round), append(workers, of)
	}
	e, err := forkjoin.New(m.Inputs(), m.Outputs(), rounds)
	if err != nil {
		t.Fatal(err)
	}
	reference, err := onnxruntime.Open(onnxruntime.Options{Model: whole, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reference.Close() })
	return e, reference, workers
}

func open(t *testing.T, m *model.Model, p *cut.Part, dir string) *onnxruntime.Engine {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	weights := m.OpenWeights()
	defer weights.Close()
	file, err := forkjoin.NewWriter(weights).Write(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	e, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// The master's answer is the whole model's (Gillis §III-B), for batches and for requests at
// the same time.
func TestForkJoin(t *testing.T) {
	e, whole, workers := master(t)
	for rows := 1; rows <= 3; rows++ {
		in := input(t, rows)
		want, err := whole.Run(t.Context(), rows, in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Run(t.Context(), rows, in)
		if err != nil {
			t.Fatal(err)
		}
		if !near(got[0].Data, want[0].Data) {
			t.Errorf("%d rows: the parts' answer is another", rows)
		}
	}
	for _, of := range workers {
		for _, w := range of {
			if n := w.calls.Load(); n != 3 {
				t.Errorf("a worker was called %d times for three requests", n)
			}
		}
	}
}

// A part that fails ends its round: the others are cancelled, and the error names it.
func TestAPartFails(t *testing.T) {
	e, _, workers := master(t)
	broken := errors.New("broken")
	workers[0][1].fail = func(context.Context) error { return broken }
	cancelled := make(chan error, 1)
	workers[0][2].fail = func(ctx context.Context) error {
		<-ctx.Done()
		cancelled <- ctx.Err()
		return ctx.Err()
	}
	_, err := e.Run(t.Context(), 1, input(t, 1))
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "round 1 of 3: part 2 of 3") {
		t.Errorf("the request got %v", err)
	}
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("its neighbour got %v", err)
	}
	if n := workers[1][0].calls.Load(); n != 0 {
		t.Errorf("the next round ran %d times", n)
	}
	workers[0][1].fail, workers[0][2].fail = nil, nil
	if _, err := e.Run(t.Context(), 1, input(t, 1)); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

// A plan that lacks a round is refused before any request.
func TestIncompletePlan(t *testing.T) {
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	round := func(first, end int) forkjoin.Round {
		g, err := c.Group(first, end)
		if err != nil {
			t.Fatal(err)
		}
		parts, err := g.Cut(g.Whole())
		if err != nil {
			t.Fatal(err)
		}
		return forkjoin.Round{{Inputs: parts[0].Inputs(), Outputs: parts[0].Outputs()}}
	}
	n := len(c.Layers())
	if _, err := forkjoin.New(m.Inputs(), m.Outputs(), []forkjoin.Round{round(0, 1), round(2, n)}); err == nil || !strings.Contains(err.Error(), "round 2 needs") {
		t.Errorf("a gap: %v", err)
	}
	if _, err := forkjoin.New(m.Inputs(), m.Outputs(), []forkjoin.Round{round(0, 1)}); err == nil || !strings.Contains(err.Error(), "no round gives the output") {
		t.Errorf("no end: %v", err)
	}
}

func input(t *testing.T, rows int) []tensor.Tensor {
	t.Helper()
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	in, err := m.SampleInputs(rows, 1)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// near reports whether all elements differ by at most 1e-6.
func near(a, b []byte) bool {
	for i := 0; i+4 <= len(a); i += 4 {
		x := math.Float32frombits(binary.LittleEndian.Uint32(a[i:]))
		y := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		if math.Abs(float64(x-y)) > 1e-6 {
			return false
		}
	}
	return len(a) == len(b)
}

// Parts of a grid have one file of weights.
func TestPartsShareWeights(t *testing.T) {
	m, err := zoo.Make("mnist", 1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	g, err := c.Group(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	how, err := g.Grid(3, 1)
	if err != nil {
		t.Fatal(err)
	}
	parts, err := g.Cut(how)
	if err != nil {
		t.Fatal(err)
	}
	weights := m.OpenWeights()
	defer weights.Close()
	w := forkjoin.NewWriter(weights)
	var files []os.FileInfo
	for _, p := range parts {
		dir := t.TempDir()
		if _, err := w.Write(dir, p); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, cut.WeightsFile))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, info)
	}
	if !os.SameFile(files[0], files[1]) || !os.SameFile(files[1], files[2]) {
		t.Error("they have files of their own")
	}
}
