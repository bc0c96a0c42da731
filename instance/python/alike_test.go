package python_test

import (
	"slices"
	"testing"
)

// The places of answers are decoded again when they change. Each batch has its own shapes,
// even if a caller changes a tensor's shape.
func TestAnswersThatAreAlike(t *testing.T) {
	e, _ := serve(t, handler(t, `
import numpy as np
inputs = {"x": ("float32", [1])}
outputs = {"y": ("float32", [None]), "n": ("float32", [1])}
def answer(r):
    if r["x"][0, 0] < 0: return ValueError("below zero by %g" % -r["x"][0, 0])
    wide = int(r["x"][0, 0])
    return {"y": np.full([len(r["x"]), wide], wide, np.float32), "n": r["x"] + 0.5}
def handle(batch): return [answer(r) for r in batch]
`))
	// Each is a batch of requests of one row; outputs are kept over the next batch where
	// that is so, and lie elsewhere then.
	for n, batch := range []struct {
		of   []float32
		keep bool
	}{
		{of: []float32{2}}, {of: []float32{2}}, {of: []float32{3}, keep: true}, {of: []float32{3}}, {of: []float32{2, 3}}, {of: []float32{3, 2}},
		{of: []float32{2, -1}}, {of: []float32{2, -2}}, {of: []float32{2, -2}}, {of: []float32{2, 3}}, {of: []float32{400}}, {of: []float32{2}},
	} {
		rows := slices.Repeat([]int{1}, len(batch.of))
		outputs, failed, release, err := e.RunLent(t.Context(), rows, floats("x", batch.of...))
		if err != nil {
			t.Fatal(n, err)
		}
		for i, wide := range batch.of {
			if wide < 0 {
				if want := map[float32]string{-1: "ValueError: below zero by 1", -2: "ValueError: below zero by 2"}[wide]; failed[i] == nil || failed[i].Error() != want {
					t.Errorf("batch %d: request %d has the error %v, want %q", n, i, failed[i], want)
				}
				continue
			}
			if failed[i] != nil {
				t.Fatalf("batch %d: request %d: %v", n, i, failed[i])
			}
			y, next := outputs[i][0], outputs[i][1]
			if !slices.Equal(y.Shape, []int64{1, int64(wide)}) || !slices.Equal(values(y), slices.Repeat([]float32{wide}, int(wide))) || !slices.Equal(values(next), []float32{wide + 0.5}) {
				t.Errorf("batch %d: request %d of %g has %v %v and %v", n, i, wide, y.Shape, values(y), values(next))
			}
			y.Shape[0], y.Shape[1] = 77, 77
		}
		if batch.keep {
			defer release()
			continue
		}
		release()
	}
}
