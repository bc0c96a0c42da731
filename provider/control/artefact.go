package control

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/variant"
)

const (
	// correctPeriod is the time between two corrections of a busy artefact's times.
	// forgetPeriod is that of an artefact without new executions.
	correctPeriod = time.Second
	forgetPeriod  = time.Minute
	// troubledPeriod replaces correctPeriod while the function's requests miss their
	// objective.
	troubledPeriod = 250 * time.Millisecond
)

// artefact is one thing that a function's instances may load, with its times: its prepared
// model, or a variant of it.
type artefact struct {
	cluster.Artefact
	// of is the name of the model of which it is a variant. accuracy is in percent, 0 if it is
	// not known.
	of       string
	accuracy float64
	// fingerprint is the fingerprint of instances that load it now, "" if the provider has
	// no other replicas.
	fingerprint string
	// cut says how the model is cut over several instances, nil if it is not. file is the model's
	// or the plan's.
	cut     *cut.Plan
	file    string
	profile *profiler.Profile
	// shadowless is why its instances can have no shadows whatever its layers are, "" if they may.
	shadowless string
	parts
	// times are the profile's times, corrected by executions; plan is made from them.
	// candidates are the plan's candidates with mean times, promised are candidates with
	// the profile's own times.
	times                *correction.Correction
	plan                 latency.Plan
	candidates, promised []capacity.Candidate
	// means are the mean times of executions, by share.
	means latency.Means
	// usual are the usual times of its executions, by which interference shows. loading is
	// how long an instance last took to load it, shadowLoading how long a shadow took to load its
	// part, 0 if unknown.
	usual                  variant.Usual
	loading, shadowLoading time.Duration
	// observed are the executions since the last look. corrected is when times were last
	// corrected. fresh: there were executions since then; unsaved: since times were last
	// stored.
	observed       []correction.Observation
	corrected      time.Time
	fresh, unsaved bool
}

// table lists the corrected times of batches of 1 to batch requests on a share, as the engine
// plans with them.
func (a *artefact) table(batch int, on profiler.Share) []time.Duration {
	return a.plan.Scaled(a.times.Table(batch, on))
}

// named sets the artefact's name and accuracy in candidates and returns them.
func (a *artefact) named(candidates []capacity.Candidate) []capacity.Candidate {
	for i := range candidates {
		candidates[i].Artefact, candidates[i].Accuracy = a.Name, a.accuracy
	}
	return candidates
}

// observe records an execution of an instance for the times.
func (a *artefact) observe(in *instance, x execution) {
	a.observed = append(a.observed, correction.Observation{Share: x.share, Batch: x.size, Exec: x.exec, Beside: x.beside})
	a.means.Observe(x.share, x.size, x.exec, in.promised)
}

// correct corrects the times by the observed executions if a correction is due. changed
// reports whether that changed them.
func (a *artefact) correct(now time.Time, troubled bool) (due, changed bool) {
	if len(a.observed) > 0 {
		a.times.Observe(now, a.observed)
		a.observed = a.observed[:0]
		a.fresh, a.unsaved = true, true
	}
	pause := forgetPeriod
	if a.fresh {
		pause = correctPeriod
		if troubled {
			pause = troubledPeriod
		}
	}
	if now.Sub(a.corrected) < pause {
		return false, false
	}
	a.corrected, a.fresh = now, false
	before := a.times.Profile()
	if !a.times.Update(now) {
		return true, false
	}
	if a.times.Profile() != before { // The means are ratios to the profile's times.
		a.means, a.usual = latency.Means{}, variant.Usual{}
	}
	return true, true
}

// replan makes a plan from the corrected times. It returns the plan before and whether the
// new one differs from it.
func (a *artefact) replan(f *provider.Function, rules *latency.Rules) (before latency.Plan, changed bool) {
	before = a.plan
	next := rules.Plan(f, a.profile, a.times)
	a.named(next.Candidates)
	if next.Slow == before.Slow && next.Scale == before.Scale && !differ(a.candidates, next.Candidates) {
		return before, false
	}
	before.Candidates = a.candidates
	a.plan, a.candidates = next, next.Candidates
	return before, true
}

// differ reports whether two lists of candidates differ in their configs or times.
func differ(before, after []capacity.Candidate) bool {
	times := func(from []capacity.Candidate) (out []time.Duration) {
		for _, x := range from {
			out = append(out, x.Exec)
		}
		return out
	}
	same := slices.EqualFunc(before, after, func(a, b capacity.Candidate) bool { return a.Config == b.Config })
	return !same || correction.Differ(times(before), times(after))
}

// slower returns the smallest factor, at least 1, by which the times of serving configs grew
// from one list of candidates to the next.
func slower(before, after []capacity.Candidate, instances []*instance) float64 {
	least := 0.0
	exec := func(from []capacity.Candidate, c cluster.Config) time.Duration {
		for _, x := range from {
			if x.Config == c {
				return x.Exec
			}
		}
		return 0
	}
	for _, in := range instances {
		if was, is := exec(before, in.Config), exec(after, in.Config); in.serves() && was > 0 && is > 0 {
			if by := float64(is) / float64(was); least == 0 || by < least {
				least = by
			}
		}
	}
	return max(1, least)
}
