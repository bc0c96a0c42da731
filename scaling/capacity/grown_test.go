package capacity

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// A planned config grows to the largest batch of the same share that is in time, whatever the load is now.
func TestGrown(t *testing.T) {
	on := func(batch, cpu int, memory int64, exec time.Duration) Candidate {
		return Candidate{Config: cluster.Config{Batch: batch, Resources: cluster.Resources{CPU: cpu, Memory: memory}}, Exec: exec * time.Millisecond}
	}
	all := []Candidate{on(1, 1000, 1, 20), on(4, 1000, 1, 40), on(8, 1000, 1, 60), on(16, 1000, 1, 120), on(32, 2000, 1, 50), on(8, 500, 1, 90), on(16, 500, 2, 95)}
	for _, test := range []struct {
		planned Candidate
		slo     time.Duration
		want    int
	}{
		{all[0], 100, 8}, // 120 ms are too long, and 32 need another share.
		{all[0], 60, 4},  // Of the 60 ms a fiftieth is reserved.
		{all[0], 200, 16},
		{all[0], 0, 16},   // Without an objective every batch is in time.
		{all[3], 100, 16}, // Never a smaller one.
		{all[5], 100, 8},  // A larger batch that takes more memory was not planned.
	} {
		if got := Production().Grown(test.planned, all, test.slo*time.Millisecond); got.Config.Batch != test.want || got.Config.CPU != test.planned.Config.CPU {
			t.Errorf("%v under %v ms grows to %v, want batches of %d", test.planned.Config, int(test.slo), got.Config, test.want)
		}
	}
	if got := Faithful().Grown(all[0], all, time.Second); got.Config.Batch != 1 {
		t.Errorf("INFless' plan grows to %v", got.Config)
	}
}
