package control

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling"
)

// smallestShare is the least CPU that an instance is given, in millicores.
const smallestShare = 250

// shares lists the CPU shares that the function's instances may have: a quarter,
// a half and all of 1, 2, 4, … cores, as far as a CPU limit of the deployment
// allows.
func shares(f *provider.Function, p *profiler.Profile) []int {
	shares := []int{smallestShare, 2 * smallestShare}
	for _, threads := range p.Threads() {
		shares = append(shares, 1000*threads)
	}
	limit := f.Inference.Limits.CPU
	if limit == 0 {
		return shares
	}
	shares = slices.DeleteFunc(shares, func(s int) bool { return s > limit })
	if len(shares) == 0 {
		shares = []int{limit}
	}
	return shares
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
func (c *Controller) largest(f *provider.Function) int {
	if c.policyName(f) == batching.OneToOneName {
		return 1
	}
	return f.Inference.MaxBatch
}

// promised lists the configs that the function's instances may have, the
// profile's batch sizes on every share, with the times that the profile says.
func (c *Controller) promised(f *provider.Function, p *profiler.Profile) []scaling.Candidate {
	return scaling.Candidates(p.Candidates(shares(f, p), c.largest(f), memory(f, p)))
}

// plan is what the engine is to choose from.
type plan struct {
	candidates []scaling.Candidate
	// refuse is why neither the profile nor the corrected times allow the
	// objective to be met; nil if one does.
	refuse *annotation.Error
	// slow is why the corrected times do not, where the profile's do; "" if
	// they do. All that is left is then lastResort millicores.
	slow       string
	lastResort int
}

// plan lists the function's candidates with corrected times.
//
// If by these the objective cannot be met, as it could by the profile's, requests
// are not refused for that: what instances have shown may be a passing trouble of
// the machine, and without executions nobody would see that it has passed. The
// config whose single requests are fastest goes on, as if it met the objective.
func (c *Controller) plan(f *provider.Function, p *profiler.Profile, times *correction.Correction) plan {
	out := plan{candidates: scaling.Candidates(times.Candidates(shares(f, p), c.largest(f), memory(f, p)))}
	why := c.hopeless(f, out.candidates)
	if why == nil {
		return out
	}
	if out.refuse = c.hopeless(f, c.promised(f, p)); len(out.candidates) == 0 {
		return out
	}
	out.slow = "the model is slower than was predicted: " + why.Why
	fastest := slices.MinFunc(out.candidates, func(a, b scaling.Candidate) int {
		return cmp.Or(cmp.Compare(a.Config.Batch, b.Config.Batch), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.CPU, b.Config.CPU))
	})
	out.lastResort = fastest.Config.CPU
	fastest.Exec = min(fastest.Exec, f.Inference.SLO/2)
	out.candidates = []scaling.Candidate{fastest}
	return out
}
