// Package objective says which configs meet a function's objective: by its model's
// profile, which is what was promised, and by the times that its instances have shown.
package objective

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Rules are what counts for all functions of a provider.
type Rules struct {
	// Policy is the batching policy of functions that name none.
	Policy string
	// Scaling are the scaling engine's options.
	Scaling capacity.Options
}

// PolicyName is the batching policy of a function.
func (r Rules) PolicyName(f *provider.Function) string {
	return cmp.Or(f.Inference.Policy, r.Policy)
}

// Queue says how the function's requests reach its instances.
func (r Rules) Queue(f *provider.Function) capacity.Queue {
	if r.PolicyName(f) == batching.InFlessName {
		return capacity.PerInstance
	}
	return capacity.LateBound
}

// BatchesAlike reports whether two revisions batch in the same way.
func (r Rules) BatchesAlike(a, b *provider.Function) bool {
	return r.PolicyName(a) == r.PolicyName(b) && a.Inference.SLO == b.Inference.SLO && a.Inference.MaxBatch == b.Inference.MaxBatch
}

// Limits are the options by which the function's batches are bounded: one with
// queues of its instances' own is not planned jointly.
func (r Rules) Limits(f *provider.Function) capacity.Options {
	o := r.Scaling
	o.Joint = o.Joint && r.Queue(f) == capacity.LateBound
	return o
}

// defaultQuantile is what part of a function's executions is to take no longer than
// is said, where its deployment names no percentile.
const defaultQuantile = 0.95

// Quantile is the part of a function's executions that its times are to hold for.
func Quantile(f *provider.Function) float64 {
	if f.Inference.PercentileStated {
		return f.Inference.Percentile / 100
	}
	return defaultQuantile
}

// memory is what each instance gets: the deployment's limit, or else what the
// profile needs.
func memory(f *provider.Function, p *profiler.Profile) int64 {
	return cmp.Or(f.Inference.Limits.Memory, memoryLimit(p.Memory))
}

// memoryLimit is what an instance may use where the deployment does not say:
// twice what was measured, for bodies in flight and the engine's arena, and at
// least 256 MiB.
func memoryLimit(measured int64) int64 { return max(2*measured, 256<<20) }

// largest is the largest batch that an instance of the function is asked for.
func (r Rules) largest(f *provider.Function) int {
	if r.PolicyName(f) == batching.OneToOneName {
		return 1
	}
	return f.Inference.MaxBatch
}

// Promised lists the configs that the function's instances may have, the
// profile's batch sizes on every share, with the times that the profile says.
func (r Rules) Promised(f *provider.Function, p *profiler.Profile) []capacity.Candidate {
	return capacity.Candidates(p.Candidates(p.Shares(f.Inference.Limits.CPU), r.largest(f), memory(f, p)))
}

// Plan is what the engine is to choose from.
type Plan struct {
	Candidates []capacity.Candidate
	// Refuse is why neither the profile nor the corrected times allow the
	// objective to be met; nil if one does.
	Refuse *annotation.Error
	// Slow is why the corrected times do not, where the profile's do; "" if
	// they do. Times then count as no more than Most times those that the profile says;
	// 0 for no such bound.
	Slow string
	Most float64
}

// Plan lists the function's candidates with corrected times.
//
// If by these the objective cannot be met, as it could by the profile's, requests
// are not refused for that, and instances are not exchanged for larger ones: what
// instances have shown is a passing trouble of the machine's, or cannot be helped, and
// without executions nobody would see that it has passed. Times then count as what a
// model may be slower by than was predicted ([correction.Believed]) or, where that is too
// slow as well, as what was promised.
func (r Rules) Plan(f *provider.Function, p *profiler.Profile, times *correction.Correction) Plan {
	out := Plan{Candidates: capacity.Candidates(times.Candidates(p.Shares(f.Inference.Limits.CPU), r.largest(f), memory(f, p)))}
	why := r.Hopeless(f, out.Candidates)
	if why == nil {
		return out
	}
	promised := r.Promised(f, p)
	if out.Refuse = r.Hopeless(f, promised); len(out.Candidates) == 0 {
		return out
	}
	out.Slow = "the model is slower than was predicted: " + why.Why
	corrected := out.Candidates
	for _, out.Most = range []float64{correction.Believed, 1} {
		if out.Candidates = bounded(corrected, promised, out.Most); r.Hopeless(f, out.Candidates) == nil {
			break
		}
	}
	return out
}

// bounded are the corrected candidates with times of at most so many times the promised
// ones, which are of the same configs in the same order.
func bounded(corrected, promised []capacity.Candidate, most float64) []capacity.Candidate {
	out := slices.Clone(corrected)
	for i := range out {
		out[i].Exec = min(out[i].Exec, time.Duration(most*float64(promised[i].Exec)))
	}
	return out
}

// Bounded is a table of corrected times of which none is longer than the plan's Most
// times the promised one.
func (p Plan) Bounded(corrected, promised []time.Duration) []time.Duration {
	if p.Most == 0 {
		return corrected
	}
	for i := range corrected {
		corrected[i] = min(corrected[i], time.Duration(p.Most*float64(promised[i])))
	}
	return corrected
}

// Hopeless says why none of the candidates meets the function's objective; nil
// if one does.
func (r Rules) Hopeless(f *provider.Function, candidates []capacity.Candidate) *annotation.Error {
	found := placing.Schedule(capacity.Demand{RPS: 1, SLO: f.Inference.SLO, Configs: candidates, Queue: r.Queue(f)}, nil, r.Scaling)
	if found.Reason != placing.NoConfig {
		return nil
	}
	return &annotation.Error{Key: annotation.SLOLatency, Value: f.Inference.SLO.String(), Why: found.Explain(f.Inference.SLO)}
}
