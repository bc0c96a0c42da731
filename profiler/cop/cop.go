// Package cop does combined operator profiling (INFless §3.3): it combines a model's time
// from the times of its operators, chain by chain and branch by branch. It does not
// estimate operators; it takes their times from a [Times], which package
// profiler/regression implements. Begin with [Predict].
package cop

import (
	"math"

	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Source is the origin of an estimate, the best first.
type Source uint8

const (
	// Measured: this operator at this batch on this share.
	Measured Source = iota
	// Interpolated: from this operator's times at other batches on this share.
	Interpolated
	// Derived: from this operator's times on another share, or with its data in
	// memory instead of the cache or the reverse.
	Derived
	// Regressed: from the times of other operators.
	Regressed
	sources
)

// String is the source in one word.
func (s Source) String() string {
	return [...]string{"measured", "interpolated", "derived", "regressed", "unknown"}[min(s, sources)]
}

// MarshalText is [Source.String].
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Estimate is the estimated time of one execution of an operator.
type Estimate struct {
	// Median, P95 and CPU are times in µs; CPU is processor time summed over
	// threads.
	Median float64 `json:"median_us"`
	P95    float64 `json:"p95_us"`
	CPU    float64 `json:"cpu_us"`
	// Margin is the safety margin to add, 0.1 for 10 %.
	Margin float64 `json:"margin"`
	Source Source  `json:"source"`
}

// Times estimates the times of operators.
type Times interface {
	// Time is the time of op at a batch size on a CPU share in millicores. cold is
	// true if its weights and inputs come from memory and not from the last-level
	// cache. Time is false if there is no estimate.
	Time(op *operator.Operator, batch, millicores int, cold bool) (Estimate, bool)
}

// Engine holds the properties of an engine that decide how operators' times combine.
type Engine struct {
	// Parallel is true if branches run side by side, each on its own resources, and
	// false if one operator runs after another on all threads.
	Parallel bool
}

// ONNXRuntime is ONNX Runtime as instances use it. Its default execution mode is
// sequential: one operator after another.
var ONNXRuntime = Engine{Parallel: false}

// mix is the estimate between warm and cold; share 0 is warm, 1 is cold.
func mix(warm, cold Estimate, share float64) Estimate {
	between := func(w, c float64) float64 { return w + share*(c-w) }
	return Estimate{
		Median: between(warm.Median, cold.Median), P95: between(warm.P95, cold.P95), CPU: between(warm.CPU, cold.CPU),
		Margin: between(warm.Margin, cold.Margin), Source: max(warm.Source, cold.Source),
	}
}

// fraction limits x to [0, 1]. NaN becomes 0.
func fraction(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(1, max(0, x))
}
