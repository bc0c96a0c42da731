package scaling

import (
	"slices"
	"sort"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// evictForSet returns the victims on all allowed nodes that make room for a set of v, if none of
// the nodes can hold one by itself: the first few in the order in which they should make room,
// without those that are not needed. It returns nil if there is no such set, or if all victims
// are not enough.
func evictForSet(p *pass, v *view, choices []capacity.Choice, others [][]victim, own map[int][]victim) []victim {
	sets := slices.DeleteFunc(slices.Clone(choices), func(c capacity.Choice) bool { return c.Config.Members() < 2 })
	if len(sets) == 0 {
		return nil
	}
	victims := everywhere(p, v, others, own)
	fits := func(gone []victim) bool {
		trial := p.space().Clone()
		for i := range gone {
			give(trial, &gone[i].Running)
		}
		return trial.Fits(sets, p.allowed(v))
	}
	if !fits(victims) {
		return nil
	}
	set := slices.Clone(victims[:sort.Search(len(victims), func(n int) bool { return fits(victims[:n]) })])
	for i := len(set) - 2; i >= 0; i-- {
		if without := slices.Delete(slices.Clone(set), i, i+1); fits(without) {
			set = without
		}
	}
	return set
}

// everywhere lists the victims on the nodes where v may be, each once, in the order in which they
// should make room.
func everywhere(p *pass, v *view, others [][]victim, own map[int][]victim) (all []victim) {
	known := map[cluster.InstanceID]bool{}
	for i := range p.space().Places {
		if !p.allowed(v).Has(i) {
			continue
		}
		for _, x := range slices.Concat(others[i], own[i]) {
			if !known[x.ID] {
				known[x.ID] = true
				all = append(all, x)
			}
		}
	}
	slices.SortFunc(all, victim.compare)
	taken := map[*view]int{}
	return slices.DeleteFunc(all, func(x victim) bool { return !x.may(v, taken) })
}
