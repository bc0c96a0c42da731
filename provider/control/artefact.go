package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// artefact is one thing that a function's instances may load, with its times: its prepared
// model, or a variant of it.
type artefact struct {
	cluster.Artefact
	// of is the name of the model of which it is a variant. accuracy is in percent, 0 if it is
	// not known.
	of       string
	accuracy float64
	// texts says what it does with texts, "" if it takes none.
	texts string
	// counter counts the tokens of requests' texts, nil if nothing does.
	counter dispatch.Counter
	// fingerprint is the fingerprint of instances that load it now, "" if the provider has
	// no other replicas.
	fingerprint string
	// cut says how the model is cut over several instances, nil if it is not. file is the model's
	// or the plan's.
	cut     *cut.Plan
	file    string
	profile *profiler.Profile
	// reach says for which sizes of requests it meets the objective, "" if they have one size.
	reach string
	// shadowless is why its instances can have no shadows whatever its layers are, "" if they may.
	shadowless string
	parts
	// paces are its times, by the type of the nodes. The first is of nodes that do not differ,
	// or of which the type is not known. lead is the one that determines plan.
	paces []*pace
	lead  *pace
	// plan is made from the times on all types of nodes. unsuited are the types on which the
	// objective cannot be met although it can on another. candidates are the plan's candidates
	// with mean times, promised are candidates with the profile's own times.
	plan                 latency.Plan
	unsuited             []string
	candidates, promised []capacity.Candidate
	// loading is how long an instance last took to load it, shadowLoading how long a shadow took to
	// load its part, 0 if unknown.
	loading, shadowLoading time.Duration
	// toldRatio is the ratio of its times to the predicted ones in the latest decision about them, 0 if there is none.
	toldRatio float64
}

// table lists the corrected times of batches of 1 to batch requests on a share and on the nodes
// of a pace, as the engine plans with them.
func (a *artefact) table(p *pace, batch int, on profiler.Share) []time.Duration {
	return a.plan.Scaled(p.times.Table(batch, on))
}

// named sets the artefact's name and accuracy in candidates and returns them.
func (a *artefact) named(candidates []capacity.Candidate) []capacity.Candidate {
	for i := range candidates {
		candidates[i].Artefact, candidates[i].Accuracy = a.Name, a.accuracy
	}
	return candidates
}

// correct corrects the times on every type of nodes for which that is due.
func (a *artefact) correct(now time.Time, troubled bool) (due, changed bool) {
	for _, p := range a.paces {
		d, c := p.correct(now, troubled)
		due, changed = due || d, changed || c
	}
	return due, changed
}

// replan makes a plan from the corrected times. It returns the plan before and whether the
// new one differs from it.
func (a *artefact) replan(f *provider.Function, rules *latency.Rules, types *nodeTypes) (before latency.Plan, changed bool) {
	before = a.plan
	next := a.join(f, rules, types)
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
			if x.Config.Keeping(c) == c {
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

// leftOut says which GPUs a function's models do not use although they should, "" if none.
func leftOut(artefacts []*artefact) string {
	var all []string
	for _, a := range artefacts {
		if why := a.profile.LeftOut; why != "" && !slices.Contains(all, why) {
			all = append(all, why)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "the model does not use every GPU that it could: " + strings.Join(all, "; ")
}

// unbatched says why a function's models take one request an execution, "" if none does.
func unbatched(artefacts []*artefact) string {
	for _, a := range artefacts {
		if a.profile.Unbatched != "" {
			return "the model takes one request an execution: " + a.profile.Unbatched
		}
	}
	return ""
}

// textsText says what the models do with texts, "" if they take none. They do the same, since a bundle with texts has
// one model. in are the function's settings.
func textsText(artefacts []*artefact, in *annotation.Inference) string {
	if len(artefacts) == 0 || artefacts[0].texts == "" {
		return ""
	}
	length := "longer ones are cut"
	if in.RefuseLong {
		length = "longer ones are refused"
	}
	if in.MaxLength > 0 {
		length = fmt.Sprintf("those of more than %d are cut", in.MaxLength)
		if in.RefuseLong {
			length = fmt.Sprintf("those of more than %d are refused", in.MaxLength)
		}
	}
	return artefacts[0].texts + "; " + length
}

// reachText says for which sizes of requests the models meet the objective, and whether requests of different sizes run
// together, "" if they have one size.
func reachText(artefacts []*artefact) string {
	var all []string
	for _, a := range artefacts {
		text := joined(a.reach, a.profile.Lengths)
		if text == "" {
			continue
		}
		if len(artefacts) > 1 {
			text = cmp.Or(a.Name, onlyModel) + ": " + text
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
