package cuda

import (
	"errors"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
)

// Only the batch sizes that are asked for are prepared. Others run on these.
func TestBatches(t *testing.T) {
	onModel(t)
	t.Setenv("MODEL_GRAPH", "0 10 0 11")
	for _, name := range []string{"mnist", "lstm-2365"} {
		file, m := zooFile(t, name)
		e, err := Open(Options{Model: file, MaxBatch: 8, Batches: []int{8, 4}, onHost: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if n := e.Nodes(); !e.Graphs() || len(n) != 2 || n[4] == nil || n[8] == nil {
			t.Errorf("%s: %q, graphs %v", name, e.WhyNot(), n)
		}
		// Each lane holds its buffers at least.
		if lanes := e.Lanes(); name == "mnist" && (len(lanes) != 2 || lanes[4] < 4*784*4 || lanes[8] < 8*784*4) || name != "mnist" && lanes != nil {
			t.Errorf("%s: lanes hold %v", name, lanes)
		}
		for i, b := range e.lanes[0].batches {
			b.graph = false // The model of the driver does not know the answers for other inputs.
			if i != 4 && name == "mnist" {
				t.Errorf("a lane for %d rows", i)
			}
		}
		inputs, err := m.SampleInputs(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := e.Run(t.Context(), 1, inputs); err != nil || got[0].Shape[0] != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, batches := range [][]int{{0}, {9}} {
		if _, err := Open(Options{Model: "m", MaxBatch: 8, Batches: batches}); err == nil {
			t.Errorf("batch sizes %v", batches)
		}
	}
}

// An engine that prepares one batch size at a time has one session, and a graph of the last.
func TestSingle(t *testing.T) {
	onModel(t)
	t.Setenv("MODEL_GRAPH", "0")
	file, m := zooFile(t, "mnist")
	e, err := Open(Options{Model: file, MaxBatch: 4, Single: true, onHost: true})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Repeat(t.Context()); err == nil {
		t.Error("repeats nothing")
	}
	if err := onnxruntime.Load(""); err != nil {
		t.Fatal(err)
	}
	cpu, err := onnxruntime.Open(onnxruntime.Options{Model: file, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	for _, rows := range []int{4, 1} {
		inputs, err := m.SampleInputs(rows, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Run(t.Context(), rows, inputs); err == nil {
			t.Errorf("runs %d rows unprepared", rows)
		}
		if err := e.Prepare(t.Context(), rows, inputs); err != nil {
			t.Fatal(err)
		}
		if times, err := e.Repeat(t.Context()); err != nil || times.Compute == 0 || !e.lanes[0].batches[rows].graph {
			t.Errorf("%v, %v, %q", times, err, e.WhyNot())
		}
		e.lanes[0].batches[rows].graph = false
		got, err := e.Run(t.Context(), rows, inputs)
		if err != nil {
			t.Fatal(err)
		}
		want, err := cpu.Run(t.Context(), rows, inputs)
		if err != nil {
			t.Fatal(err)
		}
		if d := Difference(got[0], want[0]); d > 1e-5 {
			t.Errorf("%d rows differ by %g", rows, d)
		}
	}
	closing, err := Open(Options{Model: file, MaxBatch: 4, Single: true, onHost: true})
	if err != nil {
		t.Fatal(err)
	}
	inputs, err := m.SampleInputs(1, 1)
	if err = errors.Join(err, closing.Prepare(t.Context(), 1, inputs), closing.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := closing.Repeat(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
	if len(e.lanes) != 1 || len(e.lanes[0].batches) != 1 || len(e.Stages()) == 0 || slices.ContainsFunc(e.Stages(), func(s Stage) bool { return s.Name == "batch 4" }) {
		t.Errorf("%d lanes, %v", len(e.lanes), e.Stages())
	}
}
