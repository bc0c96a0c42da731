package scaling

import (
	"math"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Plans keep room for chance. If not even the load itself fits with that room, requests
// wait anyway and batches fill. What full batches serve counts then.

// packedRate is the rate that an instance serves without room for chance.
func (v *view) packedRate(with capacity.Candidate) float64 {
	if up := capacity.Serves(with, v.Configs, v.engine.settings.Packed(v.SLO, capacity.Grained(v.demand))); up > 0 {
		return up
	}
	return v.ranged(with, v.demand, false, &v.atDemand).Up
}

// packedCapacity is the sum of packedRate over all instances.
func (v *view) packedCapacity() float64 {
	sum := 0.0
	for i := range v.live {
		sum += v.packedRate(v.live[i].with())
	}
	return sum
}

// isCrowded reports whether some view would get less than its load.
func (t *together) isCrowded(placements []placing.Placement) bool {
	for k, v := range t.views {
		if placements[k].Reason == placing.NoRoom && v.demand-placements[k].Residual < v.least() {
			return true
		}
	}
	return false
}

// least is the load without headroom, which is only for the unforeseen. While requests
// wait for a cold start, least includes headroom, because those requests come on top.
func (v *view) least() float64 {
	if !v.memory.cold.IsZero() {
		return v.steady
	}
	return v.steady / (1 + max(0, v.engine.settings.Headroom))
}

// worstServed is the smallest part of its load that any view gets, if all batches are
// full and no room is kept for chance.
func (t *together) worstServed(placements []placing.Placement) float64 {
	part := math.Inf(1)
	for k, v := range t.views {
		sum := v.packedCapacity()
		for _, x := range placements[k].Placed {
			sum += v.packedRate(x.Candidate)
		}
		part = min(part, sum/max(v.demand, capacity.SomeLoad))
	}
	return part
}

// packedPlan plans what the views of t lack if no room is kept for chance. It reports
// whether that plan serves more than t's placements.
func (p *pass) packedPlan(views []*view, t *together, placements []placing.Placement, need func(*view) shortage) (*together, *placing.Room, []placing.Placement, bool) {
	other, room := p.ask(views, joint.Thrift{Crowded: true}, func(v *view) shortage {
		if !need(v).any() {
			return shortage{}
		}
		return shortage{max(0, max(v.demand, capacity.SomeLoad)-v.packedCapacity()), shareNeeds(v, v.lack)}
	}), p.space().Clone()
	instead := other.place(room)
	return other, room, instead, len(other.views) == len(t.views) && other.worstServed(instead) > t.worstServed(placements)*(1+joint.Gain)
}
