package profiler

import "time"

// Candidate is a possible config of the model: batch size, share, memory and memory of a
// GPU in bytes, and the conservative time of a full batch. Parts, Active and Concurrency are the
// profile's.
type Candidate struct {
	Batch int
	Share
	Memory, GPUMemory int64
	// Mapped is the part of Memory that instances of a node have together.
	Mapped                     Mapped
	Parts, Active, Concurrency int
	// Apart: each of the parts has the CPU of an active one.
	Apart bool
	Exec  time.Duration
}

// Candidates lists the configs of the paper's discrete ranges (INFless §3.3) without a GPU:
// every power of two up to maxBatch, and maxBatch itself, on every CPU share of shares, in
// millicores. It leaves out batches and shares that the profile does not cover. Each
// config has memory bytes, or the profile's memory if that is 0.
//
// Members of a model that is cut may share the CPU of those that compute at the same time. They
// then run one batch at a time, on one node. With CPU for each they run as many as the profile
// says, and may be on several. For example three members that compute one after the other have
// 1000m together, or 3000m.
func (p *Profile) Candidates(shares []int, maxBatch int, memory int64) []Candidate {
	if memory == 0 {
		memory = p.Memory
	}
	var cs []Candidate
	for _, cpu := range shares {
		share := Share{CPU: cpu}
		for _, b := range p.batches(maxBatch) {
			if t, ok := p.ExecTime(b, share); ok {
				c := Candidate{Batch: b, Share: share, Memory: memory, Parts: p.Parts, Concurrency: p.Concurrency, Exec: t}
				if n, active := p.Members(), p.Computing(); active < n {
					together := c
					together.Active, together.Concurrency = active, 0
					cs = append(cs, together)
					c.Active, c.Apart, c.CPU = active, true, cpu/active*n
				}
				cs = append(cs, c)
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
