package joint

import (
	"slices"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Instances of a node that map the same file of weights have it once. A pattern does not know that: an
// item has one need, whatever is beside it, so each counts all of its memory. Where memory runs short,
// patterns therefore hold fewer instances than a node does. What they leave over is placed beside
// instances that map the same, one by one.

// addTwins places instances on nodes where others map the same, for what placements leave over: the next
// one for the demand of which the least part is served.
func (p *Problem) addTwins(room *placing.Room, placements []placing.Placement) {
	if !slices.ContainsFunc(p.items, func(it packing.Item) bool { return it.Need.Mapped.Bytes > 0 }) {
		return
	}
	full := make([]bool, len(p.Demands))
	for {
		short, most := -1, capacity.Negligible
		for k := range p.Demands {
			if full[k] {
				continue
			}
			if part := p.Demands[k].unserved(placements[k].Placed); part > most {
				short, most = k, part
			}
		}
		if short < 0 {
			return
		}
		full[short] = !p.addTwin(room, short, &placements[short])
	}
}

// unserved is the largest part of a demand or of a share of it that is not served.
func (d *Demand) unserved(placed []placing.Placed) (part float64) {
	if d.Need > 0 {
		part = d.lack(nil, placed) / d.Need
	}
	for n := range d.Shares {
		part = max(part, d.lack(&d.Shares[n], placed)/d.Shares[n].Need)
	}
	return part
}

// addTwin is one step of addTwins for the k-th demand: for a share of it that is short, which serves the
// whole, too, otherwise for the whole. It reports whether there was room.
func (p *Problem) addTwin(room *placing.Room, k int, to *placing.Placement) bool {
	d := &p.Demands[k]
	add := func(share *Share, need float64) bool {
		lack := d.lack(share, to.Placed)
		if lack <= capacity.Negligible*need {
			return false
		}
		choices := d.Choices
		if share != nil {
			choices = slices.DeleteFunc(slices.Clone(choices), func(c capacity.Choice) bool { return !share.has(c.Artefact) })
		}
		x, ok := room.Twin(choices, d.Allowed, lack)
		if ok {
			to.Placed = append(to.Placed, x)
		}
		return ok
	}
	for n := range d.Shares {
		if add(&d.Shares[n], d.Shares[n].Need) {
			return true
		}
	}
	return add(nil, d.Need)
}
