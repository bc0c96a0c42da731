package latency

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// vector is a buffer with percentiles of eight million simulated requests (Sim*), and
// the exact part of the batches of each size.
type vector struct {
	Name                   string
	D0, D1                 [][]float64
	B                      int
	T                      float64
	S                      []float64
	SimP50, SimP95, SimP99 float64
	ExMeanBatch            float64
	ExactPi                []float64
}

func (v vector) buffer(t testing.TB) Buffer {
	t.Helper()
	m, err := arrival.New(v.D0, v.D1)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	return Buffer{m, v.B, v.T, v.S}
}

// worst is the largest error of percentiles, in per cent.
func (v vector) worst(d *Distribution) float64 {
	worst := 0.0
	for q, want := range map[float64]float64{0.50: v.SimP50, 0.95: v.SimP95, 0.99: v.SimP99} {
		worst = max(worst, 100*math.Abs(d.Quantile(q)/want-1))
	}
	return worst
}

// vectors were made for this project by simulation and by numerical solution.
func vectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestExactOnVectors(t *testing.T) {
	for _, v := range vectors(t) {
		d, err := v.buffer(t).Exact()
		if err != nil {
			t.Fatal(err)
		}
		for k, got := range d.Batches() {
			if !(math.Abs(got-v.ExactPi[k]) < 1e-6) {
				t.Errorf("%s: batches of %d: %v, want %v", v.Name, k+1, got, v.ExactPi[k])
			}
		}
		if math.Abs(d.MeanBatch()-v.ExMeanBatch) > 1e-6 {
			t.Errorf("%s: batches of %v, want %v", v.Name, d.MeanBatch(), v.ExMeanBatch)
		}
		worst := v.worst(d)
		t.Logf("%s: percentiles are off by %.3f %%", v.Name, worst)
		if worst > 1 {
			t.Errorf("%s: off by %.2f %%", v.Name, worst)
		}
	}
}
