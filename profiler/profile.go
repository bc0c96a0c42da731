// Package profiler knows how long a model's batches take under each config:
// predicted from its operators (INFless §3.3, package cop), or from
// measurements of the model ([Measure]). Pure but for what it is handed.
package profiler

import (
	"slices"
	"time"
)

// Measurement is one measured or predicted point of a model: b requests on so
// many threads of this machine's engine.
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
	// Runs is how many executions the figures come from: 0 if they are
	// predicted.
	Runs int `json:"runs"`
	// Predicted is true if the times were combined from those of the model's
	// operators.
	Predicted bool `json:"predicted,omitempty"`
	// Margin is what to add to the times to be safe, 0.1 for 10 %; 0 stands
	// for [Margin].
	Margin float64 `json:"margin,omitempty"`
}

// Beside is the CPU time in µs that an instance uses beside the engine, on reading and
// writing bodies and on the way: so much for a batch and so much for each request in it.
type Beside struct {
	Batch   float64 `json:"batch_us"`
	Request float64 `json:"request_us"`
}

// of is that of a batch of so many requests.
func (b Beside) of(requests int) float64 { return b.Batch + b.Request*float64(requests) }

// Payloads is the CPU time in µs to read a request's body with one row of the model's
// inputs and to write the answer, by format.
type Payloads struct {
	Binary float64 `json:"binary_us"`
	JSON   float64 `json:"json_us"`
}

// Profile is all that is known of one model's times on one machine.
type Profile struct {
	// Model is the SHA-256 of the model file, in hex.
	Model string `json:"model"`
	// Engine and Machine say what the times hold for: "onnxruntime 1.31.1",
	// "AMD EPYC × 2". A profile of another engine or machine is not used.
	Engine  string `json:"engine"`
	Machine string `json:"machine"`
	// Memory is the resident set in bytes after the largest batch.
	Memory int64 `json:"memory"`
	// Provisional: it was found in a moment, to begin with, and a fuller one follows.
	Provisional  bool          `json:"provisional,omitempty"`
	Measurements []Measurement `json:"measurements"`
	MeasuredAt   time.Time     `json:"measuredAt"`
	// Payloads are nil if nobody has measured them.
	Payloads *Payloads `json:"payloads,omitempty"`
	// Beside is added to the engine's times. It is not the model's but of what its
	// clients send, and is not kept with the profile.
	Beside Beside `json:"-"`
}

// MaxBatch is the largest batch that the profile knows.
func (p *Profile) MaxBatch() int {
	largest := 0
	for _, m := range p.Measurements {
		largest = max(largest, m.Batch)
	}
	return largest
}

// Threads lists the known thread counts, ascending.
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
