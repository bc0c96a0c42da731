// Package partitioning plans how models are cut over several instances, on the paper's
// platforms and on this machine, which it measures (Gillis §IV-A): how long the layers of a
// model take, how long tensors take from one process to another, and what it costs to take
// regions out of them. Begin with [Plan]; [Platform] is this machine.
package partitioning

import (
	"time"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/profiler"
)

// Codec measures how long it takes to copy a part's region out of a tensor, and an answer's
// into one, by medians.
func Codec() (partition.Codec, error) {
	const mib = 1 << 20
	shape := []int64{1, 64, 112, 112}
	region := cut.Region{{From: 0, To: 1}, {From: 0, To: 64}, {From: 27, To: 85}, {From: 0, To: 112}}
	n := int64(4)
	for _, d := range shape {
		n *= d
	}
	data := make([]byte, n)
	var takes, puts []float64
	size := 0
	for range 50 {
		began := time.Now()
		part, err := cut.Take(data, shape, region, 4)
		if err != nil {
			return partition.Codec{}, err
		}
		took := time.Now()
		if err := cut.Put(data, shape, region, 4, part); err != nil {
			return partition.Codec{}, err
		}
		takes = append(takes, float64(took.Sub(began).Nanoseconds())/1e6)
		puts = append(puts, float64(time.Since(took).Nanoseconds())/1e6)
		size = len(part)
	}
	perMiB := func(ms []float64) partition.Line {
		return partition.Line{A: profiler.Quantile(ms, 0.5) / float64(size) * mib}
	}
	return partition.Codec{UnitBytes: mib, Encode: perMiB(takes), Decode: perMiB(puts)}, nil
}
