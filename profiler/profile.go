// Package profiler calculates how long a model's batches take under each config.
// The times come from the model's operators (INFless §3.3, package cop) or from
// measurements of the model ([Measure]). The package has no clock and no engine of
// its own; the caller passes them. Begin with [Profile] and [Profile.ExecTime].
package profiler

import (
	"encoding/json"
	"slices"
	"time"
)

// Measurement is one measured or predicted point of a model: a batch size on a
// number of threads, or on a share of a GPU.
type Measurement struct {
	// Batch is the number of requests.
	Batch int `json:"batch"`
	// Threads is the number of the engine's threads, each on its own core; 1 on a GPU.
	Threads int `json:"threads"`
	// GPU is g in % of one GPU's SMs; 0 is on the CPU.
	GPU int `json:"gpu,omitzero"`
	// Median, P95 and CPU are times in µs; CPU is processor time summed over
	// threads.
	Median float64 `json:"median_us"`
	P95    float64 `json:"p95_us"`
	CPU    float64 `json:"cpu_us"`
	// Runs is the number of measured executions, 0 if the times are predicted.
	Runs int `json:"runs"`
	// Predicted is true if the times are combined from those of the model's
	// operators.
	Predicted bool `json:"predicted,omitempty"`
	// Margin is the safety margin to add to the times, 0.1 for 10 %; 0 means
	// [Margin].
	Margin float64 `json:"margin,omitempty"`
	// In, Compute and Out are the times in µs to copy the batch to the GPU, to compute there
	// and to copy the answers back. They are parts of Median; the rest is the host's.
	In      float64 `json:"in_us,omitzero"`
	Compute float64 `json:"compute_us,omitzero"`
	Out     float64 `json:"out_us,omitzero"`
	// DeviceMemory is what an engine for batches up to this one holds of the GPU's memory,
	// in bytes.
	DeviceMemory int64 `json:"device_memory,omitzero"`
}

// Beside is the CPU time in µs that an instance uses outside the engine, to read and
// write bodies and to pass them on. Batch is the part per batch, Request the part per
// request.
type Beside struct {
	Batch   float64 `json:"batch_us"`
	Request float64 `json:"request_us"`
}

// of is the CPU time in µs outside the engine for a batch of this many requests.
func (b Beside) of(requests int) float64 { return b.Batch + b.Request*float64(requests) }

// Payloads is the CPU time in µs, by format, to read a body with one row of the
// model's inputs and to write the answer.
type Payloads struct {
	Binary float64 `json:"binary_us"`
	JSON   float64 `json:"json_us"`
}

// Mapped is a file of Bytes bytes that instances map. File names it on its node.
type Mapped struct {
	File  string
	Bytes int64
}

// Measured is the result of a process that measures or predicts a model: its profile, and the directory
// that instances load.
type Measured struct {
	Prepared string   `json:"prepared"`
	Profile  *Profile `json:"profile"`
}

// Profile holds one model's times on one machine.
type Profile struct {
	// Model is the SHA-256 of the model file, in hex.
	Model string `json:"model"`
	// Engine and Machine are those of the times, as "onnxruntime 1.32.0" and
	// "AMD EPYC × 2". A profile of another engine is not used.
	Engine  string `json:"engine"`
	Machine string `json:"machine"`
	// Yardstick is the time in µs that a fixed small computation took on the machine, by which
	// the times are converted for another one ([Profile.Scaled]); 0 if it was not measured.
	Yardstick float64 `json:"yardstick_us,omitzero"`
	// Memory is the resident set in bytes after the largest batch. DeviceHost is that of an
	// engine on a GPU, in a profile that has both ([Profile.With]).
	Memory     int64 `json:"memory"`
	DeviceHost int64 `json:"device_host,omitzero"`
	// Parts is the number of instances of the same size that run the model together, 0 or 1
	// for one; Memory is of all together. Concurrency is the
	// number of batches that they run at the same time, 0 for 1. Active is the number of them
	// that compute at the same time for one batch, 0 for all; the measurements' threads and CPU
	// are those of that many.
	Parts       int `json:"parts,omitempty"`
	Active      int `json:"active,omitempty"`
	Concurrency int `json:"concurrency,omitempty"`
	// Sizes tells the sizes of the model's free dimensions that the deployment stated, of which the
	// times are; "" for assumed ones.
	Sizes string `json:"sizes,omitempty"`
	// BySize says how the times change with the size of a row; nil if the model has no free length,
	// or if that is not known.
	BySize *Sizes `json:"bySize,omitempty"`
	// Longest: the times are predicted, as the longest path through the model's operators; they
	// are the sum of all otherwise.
	Longest bool `json:"longest,omitzero"`
	// Provisional is true for a sketch, which a full profile will replace.
	Provisional  bool          `json:"provisional,omitempty"`
	Measurements []Measurement `json:"measurements"`
	MeasuredAt   time.Time     `json:"measuredAt"`
	// Layers is the layer profile, as JSON, from which the parts of the model that other instances may hold are
	// chosen; empty if no function has asked for such instances.
	Layers json.RawMessage `json:"layers,omitempty"`
	// Undivided is why no other instance can hold a part of the model, "" if one can or if that is unknown.
	Undivided string `json:"undivided,omitempty"`
	// Payloads is nil if it was not measured.
	Payloads *Payloads `json:"payloads,omitempty"`
	// Beside is added to the engine's times. It depends on the clients' requests
	// and not on the model, so it is not stored with the profile.
	Beside Beside `json:"-"`
	// LeftOut says on which of the nodes' GPUs the model should run and does not, and why; "" if on
	// none. It is of the last try, so it is not stored.
	LeftOut string `json:"-"`
	// Devices has the machines of the profiles on GPUs that [Profile.With] has joined: on no others are the
	// times known.
	Devices []string `json:"-"`
	// Own is what an instance has to itself that maps the weights of a prepared model, in bytes: Memory
	// may count a second copy of them. It is 0 if it is not known, and nothing is then counted together.
	Own int64 `json:"own,omitzero"`
	// Mapped is the file, and the part of Memory, that instances on one node map together; it depends on
	// how the model was prepared there. It is zero if they share none.
	Mapped Mapped `json:"-"`
	// Unbatched is why the model takes one request an execution, "" if rows of several requests
	// run together. Such a profile has times of batches of 1 only.
	Unbatched string `json:"unbatched,omitempty"`
	// Lengths says whether requests of different lengths run together, "" if all have one length or if the model takes
	// no tokens.
	Lengths string `json:"lengths,omitempty"`
	// WholeDevice: an instance takes all memory of its GPU, whatever that is.
	WholeDevice bool `json:"wholeDevice,omitzero"`
}

// Members is the number of instances that run the model together, at least 1.
func (p *Profile) Members() int { return max(1, p.Parts) }

// Computing is the number of members that compute at the same time for one batch, at least 1.
func (p *Profile) Computing() int {
	if p.Active > 0 {
		return min(p.Active, p.Members())
	}
	return p.Members()
}

// MaxBatch is the largest batch size in the profile.
func (p *Profile) MaxBatch() int {
	largest := 0
	for _, m := range p.Measurements {
		largest = max(largest, m.Batch)
	}
	return largest
}

// Threads lists the profile's thread counts on the CPU, ascending.
func (p *Profile) Threads() []int {
	var ts []int
	for _, m := range p.Measurements {
		if m.GPU == 0 && !slices.Contains(ts, m.Threads) {
			ts = append(ts, m.Threads)
		}
	}
	slices.Sort(ts)
	return ts
}
