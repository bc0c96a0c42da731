package latency

import (
	"cmp"
	"fmt"
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
	if batching.Of(r.PolicyName(f)).OwnQueues {
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
	return r.Scaling.Of(r.Queue(f))
}

// Planned is the objective that capacity is planned for. What is left of it after the
// scheduler's reserve is what the batching policy leaves for executing: all but the way
// back. A config that took longer would be planned, and every request turned away. Of 100
// ms the policy leaves 95 ms: 95/(1 − 0.02) = 96.9 ms.
func (r Rules) Planned(f *provider.Function) time.Duration {
	slo := f.Inference.SLO
	return min(slo, r.Limits(f).Objective(slo-batching.Travel(slo)))
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
	if batching.Of(r.PolicyName(f)).Single {
		return 1
	}
	return f.Inference.MaxBatch
}

// Promised lists the configs that the function's instances may have, the
// profile's batch sizes on every share, with the times that the profile says.
func (r Rules) Promised(f *provider.Function, p *profiler.Profile) []capacity.Candidate {
	return r.settled(f, capacity.Candidates(p.Candidates(shares(f, p), r.largest(f), memory(f, p))))
}

// shares lists the CPU shares in millicores that the function's instances may have: those
// of the profile from requests.cpu to limits.cpu, or requests.cpu itself if there is none.
func shares(f *provider.Function, p *profiler.Profile) []int {
	least := f.Inference.Requests.CPU
	within := slices.DeleteFunc(p.Shares(f.Inference.Limits.CPU), func(share int) bool { return share < least })
	if len(within) == 0 {
		return []int{least}
	}
	return within
}

// settled leaves, of a function whose number of instances is settled, only the largest batch
// on each share that meets the objective, if one does: which load there is makes no choice
// then. It takes smaller ones, too.
func (r Rules) settled(f *provider.Function, all []capacity.Candidate) []capacity.Candidate {
	if f.Inference.MinReplicas == 0 || f.Inference.MinReplicas != f.Inference.MaxReplicas {
		return all
	}
	largest := map[int]int{}
	for _, c := range all {
		if r.Limits(f).Meets(c, r.Planned(f)) {
			largest[c.Config.CPU] = max(largest[c.Config.CPU], c.Config.Batch)
		}
	}
	return slices.DeleteFunc(all, func(c capacity.Candidate) bool {
		return largest[c.Config.CPU] > 0 && c.Config.Batch != largest[c.Config.CPU]
	})
}

// Plan is what the engine is to choose from.
type Plan struct {
	Candidates []capacity.Candidate
	// Refuse is why neither the profile nor the corrected times allow the
	// objective to be met; nil if one does.
	Refuse *annotation.Error
	// Slow is why the corrected times do not, where the profile's do; "" if they do.
	// Times then count as Scale times the corrected ones, so that the fastest config just
	// meets the objective; 0 for the corrected times themselves.
	Slow  string
	Scale float64
}

// Plan lists the function's candidates with corrected times.
//
// If by these the objective cannot be met, as it could by the profile's, requests are
// not refused for that. The fastest config goes on, with batches that leave it the
// better part of the objective: nobody would see otherwise that the trouble has passed.
// The description of the function says what it would take.
func (r Rules) Plan(f *provider.Function, p *profiler.Profile, times *correction.Correction) Plan {
	out := Plan{Candidates: r.settled(f, capacity.Candidates(times.Candidates(shares(f, p), r.largest(f), memory(f, p))))}
	why := r.Hopeless(f, out.Candidates)
	if why == nil {
		return out
	}
	promised := r.Promised(f, p)
	if out.Refuse = r.Hopeless(f, promised); len(out.Candidates) == 0 {
		return out
	}
	fastest := capacity.Fastest(out.Candidates)
	out.Slow = fmt.Sprintf("the model is slower than was predicted, and no config meets the objective now: the fastest, %v, takes %v; deploy with %s of %v or more, a larger limit of CPU, or a smaller model",
		fastest.Config, fastest.Exec.Round(time.Millisecond/10), annotation.SLOLatency, (fastest.Exec * 5 / 4).Round(time.Millisecond))
	out.Scale = r.fitting(f, fastest.Exec)
	for i := range out.Candidates {
		out.Candidates[i].Exec = scaled(out.Candidates[i].Exec, out.Scale)
	}
	return out
}

// fitting is the part of a time with which one request still meets the objective if it
// is executed at once, at most 1. A twentieth is left for getting there.
func (r Rules) fitting(f *provider.Function, exec time.Duration) float64 {
	slo := f.Inference.SLO
	return min(1, 0.95*(slo-batching.Travel(slo)).Seconds()/exec.Seconds())
}

// fits is the part of a time that has to fit for it to count as fitting; what was scaled to
// fit does.
const fits = 0.999

// Usable is the largest batch that an instance may take of which a batch of b takes
// exec[b-1]; 0 if not even one request can be in time. A request that is taken up a moment
// after it came must be, or an instance would refuse all that come and never show that
// its times are better again.
func (r Rules) Usable(f *provider.Function, exec []time.Duration) int {
	if f.Inference.SLO > 0 && len(exec) > 0 && r.fitting(f, exec[0]) < fits {
		return 0
	}
	return r.Limits(f).Usable(exec, r.Planned(f))
}

func scaled(exec time.Duration, by float64) time.Duration {
	return max(1, time.Duration(by*float64(exec)))
}

// Scaled is a table of corrected times as the plan has them.
func (p Plan) Scaled(corrected []time.Duration) []time.Duration {
	if p.Scale == 0 {
		return corrected
	}
	for i := range corrected {
		corrected[i] = scaled(corrected[i], p.Scale)
	}
	return corrected
}

// Fallback are the times by which an instance goes on that is too slow by those in
// exec: in proportion, so that one request that is executed at once is just in time. If
// the trouble has passed, it is; otherwise it shows that it has not.
func (r Rules) Fallback(f *provider.Function, exec []time.Duration) []time.Duration {
	if len(exec) == 0 {
		return nil
	}
	return Plan{Scale: r.fitting(f, exec[0])}.Scaled(slices.Clone(exec))
}

// Hopeless says why none of the candidates meets the function's objective; nil
// if one does.
func (r Rules) Hopeless(f *provider.Function, candidates []capacity.Candidate) *annotation.Error {
	found := placing.Schedule(capacity.Demand{RPS: 1, SLO: r.Planned(f), Configs: candidates, Queue: r.Queue(f)}, nil, r.Scaling)
	if found.Reason != placing.NoConfig {
		return nil
	}
	return &annotation.Error{Key: annotation.SLOLatency, Value: f.Inference.SLO.String(), Why: found.Explain(f.Inference.SLO)}
}
