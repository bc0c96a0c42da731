package latency

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/history"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Rules hold the settings that apply to all functions of a provider.
type Rules struct {
	// Policy is the default batching policy.
	Policy string
	// Scaling are the scaling engine's options.
	Scaling capacity.Options
	// LeastCPU is the least share in millicores that instances get unless the deployment's limit is lower; 0 is any. Times
	// on a share are predicted for quotas with periods of [profiler.QuotaPeriod]. Those of a kubelet are ten times as
	// long: an instance of 125m that has used up its quota would stand still for 87 ms.
	LeastCPU int
	// MostCPU is the CPU of the largest node in millicores, 0 if it is not known. No instance is planned that fits on no
	// node, unless there is no smaller one.
	MostCPU int
}

// PolicyName returns the name of a function's batching policy.
func (r Rules) PolicyName(f *provider.Function) string {
	return cmp.Or(f.Inference.Policy, r.Policy)
}

// Queue says where the function's requests wait for its instances.
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

// Limits returns the scaling options for the function's kind of queue: functions whose
// instances have their own queues are not planned jointly.
func (r Rules) Limits(f *provider.Function) capacity.Options {
	return r.Scaling.Of(r.Queue(f))
}

// Planned returns the objective that the engine plans capacity for. After the scheduler's
// reserve it leaves as much time for execution as the batching policy does, which subtracts the
// way back. With the full objective the engine could plan a config on which the policy refuses
// every request. For example, of 100 ms the policy leaves 95 ms: 95/(1 − 0.02) = 96.9 ms.
func (r Rules) Planned(f *provider.Function) time.Duration {
	slo := f.Inference.SLO
	return min(slo, r.Limits(f).Objective(slo-batching.Travel(slo)))
}

// defaultQuantile is the result of Quantile for a deployment without a percentile.
const defaultQuantile = 0.95

// Quantile returns the part of a function's executions that must take no longer than its times
// say.
func Quantile(f *provider.Function) float64 {
	if f.Inference.PercentileStated {
		return f.Inference.Percentile / 100
	}
	return defaultQuantile
}

// memory returns the memory of each instance in bytes, and what of it the instances of a node map
// together. It is the deployment's limit, of which each counts all; otherwise memoryLimit of the
// profile's memory. Instances that run a model together have it each, and map nothing together.
//
// What is mapped is there once, so only the rest is doubled. For example 78 MiB are an instance's own of
// ResNet-50, and it maps 105 MiB: 2·78 + 105 = 261 MiB. A profile without an own part counts nothing
// together. That part does not follow from the resident set, of which the file is no part: it may have the
// weights twice, plain and packed, and instances read only some of it.
func memory(f *provider.Function, p *profiler.Profile) (bytes int64, mapped profiler.Mapped) {
	n := int64(p.Members())
	if limit := f.Inference.Limits.Memory; limit > 0 {
		return n * limit, mapped
	}
	if mapped = p.Mapped; n > 1 || mapped.Bytes <= 0 || p.Own <= 0 {
		return n * memoryLimit(p.Memory/n), profiler.Mapped{}
	}
	own := max(2*p.Own, leastMemory-mapped.Bytes, leastOwn)
	return own + mapped.Bytes, mapped
}

// leastMemory is the least default memory limit of an instance in bytes, leastOwn what it has at
// least in addition to what it maps.
const leastMemory, leastOwn = 256 << 20, 128 << 20

// memoryLimit returns the default memory limit in bytes of an instance that maps nothing together with
// others: twice the measured memory, for bodies in flight and the engine's arena.
func memoryLimit(measured int64) int64 { return max(2*measured, leastMemory) }

// largest returns the largest batch that the function's instances get.
func (r Rules) largest(f *provider.Function) int {
	if batching.Of(r.PolicyName(f)).Single {
		return 1
	}
	return f.Inference.MaxBatch
}

// Promised lists the candidates of the function with the profile's own times: the profile's
// batch sizes on every share.
func (r Rules) Promised(f *provider.Function, p *profiler.Profile) []capacity.Candidate {
	return r.settled(f, capacity.Candidates(r.configs(f, p)))
}

// configs lists the configs on the CPU and on a GPU that the deployment allows, with p's times.
func (r Rules) configs(f *provider.Function, p *profiler.Profile) (all []profiler.Candidate) {
	in := &f.Inference
	if in.Device != annotation.DeviceCUDA {
		bytes, mapped := memory(f, p)
		all = p.Candidates(r.shares(f, p), r.largest(f), bytes)
		for i := range all {
			all[i].Mapped = mapped
		}
	}
	if in.Device != annotation.DeviceCPU {
		all = append(all, p.DeviceCandidates(profiler.Bounds{
			LeastCPU: in.Requests.CPU, MostCPU: in.Limits.CPU, MaxBatch: r.largest(f), Memory: cmp.Or(in.Limits.Memory, memoryLimit(p.DeviceHost)),
		})...)
	}
	return all
}

// shares lists the CPU shares in millicores that the function's instances may have: the
// profile's shares from requests.cpu to limits.cpu, or requests.cpu itself if there is none.
// Both hold for each of the instances that run a model together and compute at the same time.
func (r Rules) shares(f *provider.Function, p *profiler.Profile) []int {
	least := f.Inference.Requests.CPU * p.Computing()
	all := p.Shares(f.Inference.Limits.CPU)
	if usual := r.LeastCPU * p.Computing(); slices.Max(all) >= usual {
		least = max(least, usual)
	}
	if room := r.MostCPU * p.Computing(); room > 0 && slices.ContainsFunc(all, func(share int) bool { return least <= share && share <= room }) {
		all = slices.DeleteFunc(all, func(share int) bool { return share > room })
	}
	within := slices.DeleteFunc(all, func(share int) bool { return share < least })
	if len(within) == 0 {
		return []int{least}
	}
	return within
}

// settled reduces the candidates of a function with a fixed number of instances. On each share
// it keeps only the largest batch that meets the objective, if one does. The load does not
// matter for the choice then, and such an instance executes smaller batches, too.
func (r Rules) settled(f *provider.Function, all []capacity.Candidate) []capacity.Candidate {
	if f.Inference.MinReplicas == 0 || f.Inference.MinReplicas != f.Inference.MaxReplicas {
		return all
	}
	largest := map[profiler.Share]int{}
	for _, c := range all {
		if r.Limits(f).Meets(c, r.Planned(f)) {
			share := capacity.ShareOf(c.Config)
			largest[share] = max(largest[share], c.Config.Batch)
		}
	}
	return slices.DeleteFunc(all, func(c capacity.Candidate) bool {
		best := largest[capacity.ShareOf(c.Config)]
		return best > 0 && c.Config.Batch != best
	})
}

// Plan holds the candidates from which the engine chooses.
type Plan struct {
	Candidates []capacity.Candidate
	// Refuse is why the objective can be met neither by the profile's times nor by the
	// corrected ones; nil if it can by either.
	Refuse *annotation.Error
	// Slow is why the objective cannot be met by the corrected times, "" if it can. The
	// candidates' times are then the corrected ones multiplied by Scale, with which the
	// fastest config just meets the objective. Scale is 0 for unscaled times.
	Slow  string
	Scale float64
}

// Plan lists the function's candidates with corrected times.
//
// If the objective can be met by the profile's times but not by the corrected ones, Plan scales
// the times down until the fastest config just meets it. The function keeps serving with that
// config. Otherwise nobody would see when the slowness has passed. Slow says what would help.
func (r Rules) Plan(f *provider.Function, p *profiler.Profile, times *correction.Correction) Plan {
	corrected := *times.Profile()
	corrected.Memory, corrected.Own, corrected.Mapped = p.Memory, p.Own, p.Mapped // Only the times are corrected.
	out := Plan{Candidates: r.settled(f, capacity.Candidates(times.Correct(r.configs(f, &corrected))))}
	if r.Hopeless(f, out.Candidates) == nil {
		out.Candidates = r.usable(f, out.Candidates)
		return out
	}
	anywhere := r
	anywhere.MostCPU = 0 // A larger node may come.
	promised := anywhere.Promised(f, p)
	if out.Refuse = r.Hopeless(f, promised); len(out.Candidates) == 0 {
		return out
	}
	fastest := capacity.Fastest(out.Candidates)
	cause := "the model is slower than predicted"
	if length, unit, ok := times.Larger(); ok {
		cause = fmt.Sprintf("requests have up to %d %s, for which the model takes longer than for the %d that it was deployed for", length, unit, p.BySize.Length)
	}
	if r.MostCPU > 0 && r.Hopeless(f, capacity.Candidates(times.Correct(anywhere.configs(f, &corrected)))) == nil {
		cause = fmt.Sprintf("no node has the cores that the objective needs: the largest has %g", float64(r.MostCPU)/1000)
	}
	out.Slow = fmt.Sprintf("%s, and no config meets the objective now: the fastest, %v, takes %v; set %s to %v or more, raise limits.cpu, or deploy a smaller model",
		cause, fastest.Config, history.Round(fastest.Exec), annotation.SLOLatency, history.Round(fastest.Exec*5/4))
	out.Scale = r.fitting(f, fastest.Exec)
	for i := range out.Candidates {
		out.Candidates[i].Exec = scaled(out.Candidates[i].Exec, out.Scale)
	}
	return out
}

// usable leaves out the shares on which an instance could not even execute a batch of one
// ([Rules.Usable]). The engine's own bound is a little later: it would start such an instance, find
// it too slow once it is there, and start the same again, for ever.
func (r Rules) usable(f *provider.Function, all []capacity.Candidate) (usable []capacity.Candidate) {
	shortest := map[profiler.Share]time.Duration{}
	for _, c := range all {
		if share := capacity.ShareOf(c.Config); shortest[share] == 0 || c.Exec < shortest[share] {
			shortest[share] = c.Exec
		}
	}
	for _, c := range all {
		if exec := shortest[capacity.ShareOf(c.Config)]; c.Config.Batch > 1 && exec == c.Exec || r.fitting(f, exec) >= fits {
			usable = append(usable, c)
		}
	}
	return usable
}

// fitting returns the factor, at most 1, by which a time must be scaled for one request that is
// executed at once to meet the objective. It leaves a twentieth for the way to the instance.
func (r Rules) fitting(f *provider.Function, exec time.Duration) float64 {
	return min(1, longest(f).Seconds()/exec.Seconds())
}

// longest is the longest time of one request that is executed at once and in time.
func longest(f *provider.Function) time.Duration {
	slo := f.Inference.SLO
	return time.Duration(0.95 * float64(slo-batching.Travel(slo)))
}

// Bound returns the longest time of one request that is in time, and the widest CPU share of an instance. The time is 0 if
// instances may use a GPU.
func (r Rules) Bound(f *provider.Function, p *profiler.Profile) (exec time.Duration, widest profiler.Share) {
	if f.Inference.Device == annotation.DeviceCPU || len(p.DeviceShares()) == 0 {
		exec = longest(f)
	}
	return exec, profiler.Share{CPU: slices.Max(append(r.shares(f, p), 0))}
}

// Least returns the shortest objective for which a batch of one that takes exec is in time; see
// [Rules.Usable]. For example 0.95·(0.95·50 ms) = 45.1 ms, so 45.1 ms takes an objective of
// 50 ms; of 200 ms, 0.95·(200 ms − 5 ms) = 185.25 ms are left.
func (r Rules) Least(exec time.Duration) time.Duration {
	left := float64(exec) / 0.95
	return time.Duration(math.Ceil(max(min(left/0.95, 100e6), left+5e6*min(1, left/95e6))))
}

// fits is the smallest result of fitting that counts as 1. It is below 1 so that times which
// were scaled to fit do fit.
const fits = 0.999

// Usable returns the largest batch that an instance may execute, 0 if not even a batch of one
// is in time. exec[b-1] is the time of a batch of b. A batch of one must be in time even if it
// starts a moment after the request came. Otherwise the instance would refuse all requests and
// never show that it has become faster.
func (r Rules) Usable(f *provider.Function, exec []time.Duration) int {
	if f.Inference.SLO > 0 && len(exec) > 0 && r.fitting(f, exec[0]) < fits {
		return 0
	}
	return r.Limits(f).Usable(exec, r.Planned(f))
}

func scaled(exec time.Duration, by float64) time.Duration {
	return max(1, time.Duration(by*float64(exec)))
}

// Scaled multiplies a table of corrected times by the plan's Scale, in place, and returns it.
func (p Plan) Scaled(corrected []time.Duration) []time.Duration {
	if p.Scale == 0 {
		return corrected
	}
	for i := range corrected {
		corrected[i] = scaled(corrected[i], p.Scale)
	}
	return corrected
}

// Fallback returns the times with which a too slow instance keeps serving. It scales exec, its
// real times, until one request that is executed at once is just in time. If the slowness has
// passed, the request is in time; otherwise its execution shows that it has not.
func (r Rules) Fallback(f *provider.Function, exec []time.Duration) []time.Duration {
	if len(exec) == 0 {
		return nil
	}
	return Plan{Scale: r.fitting(f, exec[0])}.Scaled(slices.Clone(exec))
}

// TooSlow reports whether an error is one of [Rules.Hopeless].
func TooSlow(err error) bool {
	var why *annotation.Error
	return errors.As(err, &why) && why.Key == annotation.SLOLatency
}

// Hopeless returns why none of the candidates meets the function's objective, nil if one does that
// is usable.
func (r Rules) Hopeless(f *provider.Function, candidates []capacity.Candidate) *annotation.Error {
	schedule := func(candidates []capacity.Candidate) placing.Placement {
		return placing.Schedule(capacity.Demand{RPS: 1, SLO: r.Planned(f), Configs: candidates, Queue: r.Queue(f)}, nil, r.Scaling)
	}
	if schedule(r.usable(f, candidates)).Reason != placing.NoConfig {
		return nil
	}
	why := fmt.Sprintf("no config leaves a request a moment of the SLO of %v", f.Inference.SLO)
	if found := schedule(candidates); found.Reason == placing.NoConfig {
		why = found.Explain(f.Inference.SLO)
	} else if len(candidates) > 0 {
		fastest := capacity.Fastest(candidates)
		why += fmt.Sprintf(": the fastest, %v, takes %v", fastest.Config, history.Round(fastest.Exec))
	}
	return &annotation.Error{Key: annotation.SLOLatency, Value: f.Inference.SLO.String(), Why: why}
}

// Join makes one plan from those of unlike nodes. A candidate has the longest of its times, since
// its instance may come to any of the nodes that suit. suits says which do: not those on which
// the objective cannot be met while it can on others. lead is the index of the slowest that
// suits. If none does, the plan is that of the fastest, and all suit. There is at least one plan.
func Join(plans []Plan) (joined Plan, lead int, suits []bool) {
	suits = make([]bool, len(plans))
	var chosen []int
	for i, p := range plans {
		if p.Slow == "" && p.Refuse == nil && len(p.Candidates) > 0 {
			suits[i], chosen = true, append(chosen, i)
		}
	}
	if len(chosen) == 0 {
		for i, p := range plans {
			suits[i] = true
			if p.Scale > plans[lead].Scale {
				lead = i
			}
		}
		return plans[lead], lead, suits
	}
	lead = slices.MaxFunc(chosen, func(i, j int) int {
		return cmp.Compare(capacity.Fastest(plans[i].Candidates).Exec, capacity.Fastest(plans[j].Candidates).Exec)
	})
	joined = plans[lead]
	if len(chosen) == 1 {
		return joined, lead, suits
	}
	longest := map[cluster.Config]time.Duration{}
	for _, i := range chosen {
		for _, c := range plans[i].Candidates {
			longest[c.Config] = max(longest[c.Config], c.Exec)
		}
	}
	joined.Candidates = slices.Clone(joined.Candidates)
	for k := range joined.Candidates {
		joined.Candidates[k].Exec = longest[joined.Candidates[k].Config]
	}
	return joined, lead, suits
}
