package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// Without returns the plan without the starts and unparks that are outdated when it is
// carried out, and without the stops that then have no purpose. Two kinds of stops have none:
//
//   - Some of the dropped starts and unparks wait for it (After), and none of the others.
//   - It is of the same function as a dropped start, and no start or unpark that is left waits
//     for it. Whatever the plan says about the instances of that function is about an earlier
//     deployment: it may exchange them for others on other nodes, or lower their number for
//     the dropped start.
//
// After has all stops on the node that the plan made before the start. So a stop that is not
// in it made no room for that start: the room was free, and the stop has its own reason. A
// stop too few costs nothing, because the next plan decides again. One that a start waits for
// must stay, or the start would wait for ever.
//
// Resizes and parks stay: they give no room to the same plan.
func (p Plan) Without(start func(Start) bool, unpark func(Unpark) bool) Plan {
	if !slices.ContainsFunc(p.Start, start) && !slices.ContainsFunc(p.Unpark, unpark) {
		return p
	}
	needed, useless, functions := map[cluster.InstanceID]bool{}, map[cluster.InstanceID]bool{}, map[string]bool{}
	note := func(after []cluster.InstanceID, in map[cluster.InstanceID]bool) {
		for _, id := range after {
			in[id] = true
		}
	}
	p.Start = slices.DeleteFunc(slices.Clone(p.Start), func(s Start) bool {
		if start(s) {
			functions[s.Function] = true
			note(s.After, useless)
			return true
		}
		note(s.After, needed)
		return false
	})
	p.Unpark = slices.DeleteFunc(slices.Clone(p.Unpark), func(u Unpark) bool {
		if unpark(u) {
			note(u.After, useless)
			return true
		}
		note(u.After, needed)
		return false
	})
	p.Stop = slices.DeleteFunc(slices.Clone(p.Stop), func(s Stop) bool {
		return !needed[s.ID] && (useless[s.ID] || functions[s.Function])
	})
	return p
}
