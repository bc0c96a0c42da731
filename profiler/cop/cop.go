// Package cop is combined operator profiling (INFless §3.3): a model's time is
// combined from those of its operators, chain by chain and branch by branch.
// Pure: it knows operators' times from whoever implements [Times], which is
// profiler/regression over the measured rows.
package cop

import (
	"math"

	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Source says where an estimate comes from, the best first.
type Source uint8

const (
	// Measured: this operator at this batch on this share.
	Measured Source = iota
	// Interpolated: from this operator's times at other batches on this share.
	Interpolated
	// Derived: from this operator's times on another share, or with its data
	// in another part of the memory.
	Derived
	// Regressed: from the times of other operators.
	Regressed
	sources
)

// String is the source in one word.
func (s Source) String() string {
	return [...]string{"measured", "interpolated", "derived", "regressed", "unknown"}[min(s, sources)]
}

// MarshalText is String.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Estimate is how long one execution of an operator takes.
type Estimate struct {
	// Median, P95 and CPU are times in µs; CPU is processor time summed over
	// threads.
	Median float64 `json:"median_us"`
	P95    float64 `json:"p95_us"`
	CPU    float64 `json:"cpu_us"`
	// Margin is what to add to be safe, 0.1 for 10 %.
	Margin float64 `json:"margin"`
	Source Source  `json:"source"`
}

// Times knows how long operators take.
type Times interface {
	// Time is the time of op at a batch on a CPU share in millicores; cold if
	// its weights and inputs come from memory and not from the last-level
	// cache. It is false where nothing can be said.
	Time(op *operator.Operator, batch, millicores int, cold bool) (Estimate, bool)
}

// Engine is what of an engine decides how operators' times are combined.
type Engine struct {
	// Parallel is true if branches run side by side, each on resources of its
	// own, and false if one operator runs after another on all threads.
	Parallel bool
}

// ONNXRuntime is ONNX Runtime as instances use it, in its sequential execution
// mode, which is its default: one operator after the other.
var ONNXRuntime = Engine{Parallel: false}

// mix is an estimate of which the part share of the time is cold.
func mix(warm, cold Estimate, share float64) Estimate {
	between := func(w, c float64) float64 { return w + share*(c-w) }
	return Estimate{
		Median: between(warm.Median, cold.Median), P95: between(warm.P95, cold.P95), CPU: between(warm.CPU, cold.CPU),
		Margin: between(warm.Margin, cold.Margin), Source: max(warm.Source, cold.Source),
	}
}

// fraction is x as a part: within [0, 1], 0 if it is no number.
func fraction(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(1, max(0, x))
}
