package profiler

import "time"

// Candidate is a possible config of the model: batch size, CPU in millicores, GPU in %
// of one GPU's SMs, memory in bytes, and the conservative time of a full batch.
// Parts and Concurrency are the profile's.
type Candidate struct {
	Batch              int
	CPU                int
	GPU                int
	Memory             int64
	Parts, Concurrency int
	Exec               time.Duration
}

// Candidates lists the configs of the paper's discrete ranges (INFless §3.3): every
// power of two up to maxBatch, and maxBatch itself, on every CPU share of shares, in
// millicores. It leaves out batches and shares that the profile does not cover. Each
// config has memory bytes, or the profile's memory if that is 0.
func (p *Profile) Candidates(shares []int, maxBatch int, memory int64) []Candidate {
	if memory == 0 {
		memory = p.Memory
	}
	maxBatch = min(maxBatch, p.MaxBatch())
	var batches []int
	for b := 1; b < maxBatch; b *= 2 {
		batches = append(batches, b)
	}
	if maxBatch >= 1 {
		batches = append(batches, maxBatch)
	}
	var cs []Candidate
	for _, share := range shares {
		for _, b := range batches {
			if t, ok := p.ExecTime(b, share); ok {
				cs = append(cs, Candidate{Batch: b, CPU: share, Memory: memory, Parts: p.Parts, Concurrency: p.Concurrency, Exec: t})
			}
		}
	}
	return cs
}
