package python_test

import (
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/model/tensor"
)

var _ instance.LendingEngine = (*python.Engine)(nil)

const doubling = head + `
import os
def handle(batch):
    if batch[0]["x"][0, 0] < 0: os._exit(3)
    return [2 * r["x"] for r in batch]
`

// lentFloats is an input in the engine's memory.
func lentFloats(t *testing.T, e *python.Engine, values ...float32) (inputs []tensor.Tensor, release func()) {
	t.Helper()
	inputs = floats("x", values...)
	buffer, release := e.Lend(len(inputs[0].Data))
	if buffer == nil {
		t.Fatal("it lends nothing")
	}
	copy(buffer, inputs[0].Data)
	inputs[0].Data = buffer
	return inputs, release
}

// Outputs stay unchanged until their release, even if other batches run, the process is
// lost or the memory moves.
func TestOutputsAreLent(t *testing.T) {
	e, _ := serve(t, handler(t, doubling))
	inputs, done := lentFloats(t, e, 1, 2, 3)
	first, failed, release, err := e.RunLent(t.Context(), []int{1, 2}, inputs)
	if err != nil || failed[0] != nil {
		t.Fatal(err, failed)
	}
	large := make([]float32, 1<<20)
	large[1<<20-1] = 5
	for range 3 { // More than the memory had room for.
		out, err := e.Run(t.Context(), len(large), floats("x", large...))
		if err != nil || len(values(out[0])) != len(large) || values(out[0])[len(large)-1] != 10 {
			t.Fatal(err)
		}
	}
	if _, err := e.Run(t.Context(), 1, floats("x", -1)); !lost(err) {
		t.Fatal(err)
	}
	if got := append(values(first[0][0]), values(first[1][0])...); !slices.Equal(got, []float32{2, 4, 6}) {
		t.Errorf("%v", got)
	}
	// The input is in the memory of a process that has gone.
	again, _, releaseAgain, err := e.RunLent(t.Context(), []int{3}, inputs)
	if err != nil || !slices.Equal(values(again[0][0]), []float32{2, 4, 6}) {
		t.Error(again, err)
	}
	releaseAgain()
	release()
	done()
}

// The next batch reuses released memory.
func TestLentMemoryIsUsedAgain(t *testing.T) {
	e, _ := serve(t, handler(t, doubling))
	var at *byte
	for range 5 {
		inputs, done := lentFloats(t, e, 1)
		out, _, release, err := e.RunLent(t.Context(), []int{1}, inputs)
		if err != nil {
			t.Fatal(err)
		}
		if at != nil && at != &out[0][0].Data[0] {
			t.Error("the outputs are in another place each time")
		}
		at = &out[0][0].Data[0]
		release()
		done()
	}
}

// Nothing is lent once the engine is closed.
func TestNothingIsLentByAClosedEngine(t *testing.T) {
	e, _ := serve(t, handler(t, doubling))
	inputs, done := lentFloats(t, e, 1)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	inputs[0].Data[0] = 1 // It is still there.
	done()
	if buffer, _ := e.Lend(1); buffer != nil {
		t.Error("it lends memory")
	}
}
