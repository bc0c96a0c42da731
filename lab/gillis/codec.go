package gillis

import (
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/partition"
)

// measureCodec measures how long our codec takes on this machine: a part's region is copied
// out of a tensor, and an answer's into one.
func (e *evaluation) measureCodec() error {
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
			return err
		}
		took := time.Now()
		if err := cut.Put(data, shape, region, 4, part); err != nil {
			return err
		}
		takes = append(takes, float64(took.Sub(began).Nanoseconds())/1e6)
		puts = append(puts, float64(time.Since(took).Nanoseconds())/1e6)
		size = len(part)
	}
	slices.Sort(takes)
	slices.Sort(puts)
	const mib = 1 << 20
	perMiB := func(ms float64) float64 { return ms / float64(size) * mib }
	e.codec = partition.Codec{UnitBytes: mib, Encode: partition.Line{A: perMiB(takes[len(takes)/2])}, Decode: partition.Line{A: perMiB(puts[len(puts)/2])}}
	e.report.Add("codec_ms_per_mib.encode", e.codec.Encode.A, "ms", fmt.Sprintf("median of %d; the release's is %.0f on Lambda", len(takes), 0.22*256))
	e.report.Add("codec_ms_per_mib.decode", e.codec.Decode.A, "ms", fmt.Sprintf("the release's is %.0f on Lambda", 0.16*256))
	return nil
}
