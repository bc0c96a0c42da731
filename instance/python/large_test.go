package python_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// BenchmarkLargeTensors is a batch of 8 requests of 1 MiB with answers as large, less
// the handler's own time: in the median, and at the least, which other work on the
// machine does not change.
func BenchmarkLargeTensors(b *testing.B) {
	e, _ := serve(b, handler(b, `
import time
import numpy as np
inputs = {"x": ("uint8", [1 << 20])}
outputs = {"y": ("uint8", [1 << 20]), "s": ("float64", [1])}
def handle(batch):
    began = time.perf_counter()
    answers = [{"y": r["x"].copy(), "s": np.empty([1, 1])} for r in batch]
    for a in answers: a["s"][:] = time.perf_counter() - began
    return answers
`))
	const requests, each = 8, 1 << 20
	data, release := e.Lend(requests * each)
	defer release()
	inputs := []tensor.Tensor{{Name: "x", Type: tensor.Uint8, Shape: []int64{requests, each}, Data: data}}
	rows := slices.Repeat([]int{1}, requests)
	var took []float64
	for b.Loop() {
		began := time.Now()
		outputs, _, returned, err := e.RunLent(b.Context(), rows, inputs)
		whole := time.Since(began).Seconds()
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, 1000*(whole-math.Float64frombits(binary.LittleEndian.Uint64(outputs[requests-1][1].Data))))
		returned()
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2], "ms/median")
	b.ReportMetric(took[0], "ms/least")
}
