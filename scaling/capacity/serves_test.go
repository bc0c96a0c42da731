package capacity

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

func config(b, cpu, gpu int, exec time.Duration) Candidate {
	return Candidate{
		Config: cluster.Config{Batch: b, Resources: cluster.Resources{CPU: cpu, GPU: gpu, Memory: 100 << 20}},
		Exec:   exec,
	}
}

// A batch of 16 would take too long, a batch of 10 would not.
func TestBetween(t *testing.T) {
	configs := []Candidate{config(8, 4000, 10, 164*ms), config(16, 4000, 10, 284*ms), config(1, 1000, 0, 50*ms)}
	o := Production()
	got := between(configs[1], configs, o.Packed(200*ms, 1000))
	if want := 9 / 0.179; math.Abs(got-want) > 1e-6 { // 10 take 194 ms, and 10 ms to come: too long for 196
		t.Errorf("between 8 and 16: %v/s, want %v", got, want)
	}
	if got := between(configs[0], configs, o.Packed(100*ms, 1000)); got != 0 {
		t.Errorf("nothing is below: %v", got)
	}
}
