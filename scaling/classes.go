package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
)

// maxSets bounds the sets for which a function's load must be carried. Classes by accuracy
// alone need one each.
const maxSets = 32

// sets returns the sets of artefacts that must carry the load of all requests that only they
// may answer: the union of each selection of classes. By Hall's theorem these conditions are
// sufficient, too. If accuracy alone tells classes apart there is one for each class: for each
// a, the variants of accuracy a or more carry the load that asks for a or more. It returns nil
// if all candidates may answer all requests.
func sets(classes []Class, configs []capacity.Candidate) (all []set) {
	for _, c := range classes {
		if c.Part <= 0 && c.Waiting <= 0 {
			continue
		}
		own := slices.Compact(slices.Sorted(slices.Values(c.Artefacts)))
		for _, s := range append(slices.Clone(all), set{}) {
			union := slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.artefacts, own))))
			known := slices.ContainsFunc(all, func(s set) bool { return slices.Equal(s.artefacts, union) })
			if !known && len(all) < maxSets {
				all = append(all, set{artefacts: union})
			}
		}
	}
	all = slices.DeleteFunc(all, func(s set) bool {
		return !slices.ContainsFunc(configs, func(c capacity.Candidate) bool { return !s.has(c.Artefact) })
	})
	if len(all) == 0 {
		return nil
	}
	for i := range all {
		for _, c := range classes {
			if !slices.ContainsFunc(c.Artefacts, func(a string) bool { return !all[i].has(a) }) {
				all[i].part, all[i].waiting = all[i].part+c.Part, all[i].waiting+c.Waiting
			}
		}
		all[i].part = min(1, all[i].part)
	}
	return all
}

// residualOf is the load that the function's instances cannot take and that an instance of an
// artefact could.
func residualOf(v *view, artefact string) float64 {
	residual := v.wholeResidual()
	for i := range v.sets {
		if s := &v.sets[i]; s.has(artefact) {
			residual = max(residual, v.lack(s))
		}
	}
	return residual
}

// spares reports whether each set carries its part of the peak without up of an instance.
func spares(v *view, in *Running, up float64) bool {
	for i := range v.sets {
		s := &v.sets[i]
		if !s.has(in.Artefact) {
			continue
		}
		left := -up
		for k := range v.live {
			if s.has(v.live[k].Artefact) {
				left += v.peaked(&v.live[k]).Up
			}
		}
		if left < s.demandOf(v.peak) {
			return false
		}
	}
	return true
}

// shareNeeds returns what the sets need, each by need, for a joint plan.
func shareNeeds(v *view, need func(s *set) float64) (all []joint.Share) {
	for i := range v.sets {
		if s := &v.sets[i]; need(s) > 0 {
			all = append(all, joint.Share{Artefacts: s.artefacts, Need: need(s)})
		}
	}
	return all
}
