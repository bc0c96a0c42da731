package profiler

import "time"

// Candidate is a possible config of the model: batch size, share, memory and memory of a
// GPU in bytes, and the conservative time of a full batch. Parts and Concurrency are the
// profile's.
type Candidate struct {
	Batch int
	Share
	Memory, GPUMemory  int64
	Parts, Concurrency int
	Exec               time.Duration
}

// Candidates lists the configs of the paper's discrete ranges (INFless §3.3) without a GPU:
// every power of two up to maxBatch, and maxBatch itself, on every CPU share of shares, in
// millicores. It leaves out batches and shares that the profile does not cover. Each
// config has memory bytes, or the profile's memory if that is 0.
func (p *Profile) Candidates(shares []int, maxBatch int, memory int64) []Candidate {
	if memory == 0 {
		memory = p.Memory
	}
	var cs []Candidate
	for _, cpu := range shares {
		share := Share{CPU: cpu}
		for _, b := range p.batches(maxBatch) {
			if t, ok := p.ExecTime(b, share); ok {
				cs = append(cs, Candidate{Batch: b, Share: share, Memory: memory, Parts: p.Parts, Concurrency: p.Concurrency, Exec: t})
			}
		}
	}
	return cs
}

// batches lists every power of two up to maxBatch, and maxBatch itself, or the profile's
// largest batch if that is smaller.
func (p *Profile) batches(maxBatch int) []int {
	return upTo(min(maxBatch, p.MaxBatch()))
}

// upTo lists every power of two up to maxBatch, and maxBatch itself.
func upTo(maxBatch int) (batches []int) {
	for b := 1; b < maxBatch; b *= 2 {
		batches = append(batches, b)
	}
	if maxBatch >= 1 {
		batches = append(batches, maxBatch)
	}
	return batches
}
