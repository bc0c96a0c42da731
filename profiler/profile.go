// Package profiler knows how long a model's batches take under each config:
// today from measurements of the model ([Measure] at deploy), later from its
// operators (INFless §3.3). Pure but for what it is handed.
package profiler

import (
	"slices"
	"time"
)

// Measurement is one measured point of a model: b requests on so many threads
// of this machine's engine.
type Measurement struct {
	// Batch is b.
	Batch int `json:"batch"`
	// Threads the engine ran on, each on a core of its own.
	Threads int `json:"threads"`
	// Median, P95 and CPU are times in µs; CPU is processor time summed over
	// threads.
	Median float64 `json:"median_us"`
	P95    float64 `json:"p95_us"`
	CPU    float64 `json:"cpu_us"`
	// Runs is how many executions the figures come from.
	Runs int `json:"runs"`
}

// Profile is all that was measured of one model on one machine.
type Profile struct {
	// Model is the SHA-256 of the model file, in hex.
	Model string `json:"model"`
	// Engine and Machine say what the times hold for: "onnxruntime 1.31.1",
	// "AMD EPYC × 2". A profile of another engine or machine is not used.
	Engine  string `json:"engine"`
	Machine string `json:"machine"`
	// Memory is the resident set in bytes after the largest batch.
	Memory       int64         `json:"memory"`
	Measurements []Measurement `json:"measurements"`
	MeasuredAt   time.Time     `json:"measuredAt"`
}

// MaxBatch is the largest measured batch.
func (p *Profile) MaxBatch() int {
	largest := 0
	for _, m := range p.Measurements {
		largest = max(largest, m.Batch)
	}
	return largest
}

// Threads lists the measured thread counts, ascending.
func (p *Profile) Threads() []int {
	var ts []int
	for _, m := range p.Measurements {
		if !slices.Contains(ts, m.Threads) {
			ts = append(ts, m.Threads)
		}
	}
	slices.Sort(ts)
	return ts
}
