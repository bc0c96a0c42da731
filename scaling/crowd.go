package scaling

import (
	"math"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Where not even the load itself finds room with what is kept for chance, requests
// wait anyway and batches fill: what counts then is how much full batches serve.

// full is what an instance serves where nothing is kept for chance.
func (v *view) full(with capacity.Candidate) float64 {
	if up := capacity.Serves(with, v.Configs, v.engine.settings.Packed(v.SLO, capacity.Grained(v.demand))); up > 0 {
		return up
	}
	return v.ranged(with, v.demand, &v.now).Up
}

// filled is full of all the instances that there are.
func (v *view) filled() float64 {
	sum := 0.0
	for i := range v.live {
		sum += v.full(v.live[i].with())
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

// least is the load without headroom, which is for what was not foreseen; but with
// it while there are requests that had to wait for a cold start, since these come
// on top.
func (v *view) least() float64 {
	if !v.memory.cold.IsZero() {
		return v.steady
	}
	return v.steady / (1 + max(0, v.engine.settings.Headroom))
}

// full is the part of its load that the view gets which is worst off, if all
// batches are full and nothing is kept for chance.
func (t *together) full(placements []placing.Placement) float64 {
	part := math.Inf(1)
	for k, v := range t.views {
		sum := v.filled()
		for _, x := range placements[k].Placed {
			sum += v.full(x.Candidate)
		}
		part = min(part, sum/max(v.demand, capacity.SomeLoad))
	}
	return part
}

// filled is the plan for what the views of t lack if nothing is kept for chance,
// and whether it serves more than t's placements.
func (p *pass) filled(views []*view, t *together, placements []placing.Placement, need func(*view) float64) (*together, *placing.Room, []placing.Placement, bool) {
	other, room := p.ask(views, joint.Thrift{Crowded: true}, func(v *view) float64 {
		if need(v) <= 0 {
			return 0
		}
		return max(v.demand, capacity.SomeLoad) - v.filled()
	}), p.space().Clone()
	instead := other.Place(room)
	return other, room, instead, len(other.views) == len(t.views) && other.full(instead) > t.full(placements)*(1+joint.Gain)
}
