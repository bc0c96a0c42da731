package scaling

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Where not even the load itself finds room with what is kept for chance, requests
// wait anyway and batches fill: what counts then is how much full batches serve.

// full is what an instance serves where nothing is kept for chance.
func (v *view) full(c cluster.Config, exec, mean time.Duration) float64 {
	in := Running{Config: c, Exec: exec, Mean: mean}
	if up := serves(&in, v.Configs, v.engine.settings.packed(v.SLO, grained(v.demand))); up > 0 {
		return up
	}
	return v.bounds(&in).Up
}

// filled is full of all the instances that there are.
func (v *view) filled() float64 {
	sum := 0.0
	for i := range v.live {
		in := &v.live[i]
		sum += v.full(in.Config, in.Exec, in.Mean)
	}
	return sum
}

// isCrowded reports whether some view would get less than its load.
func (t *together) isCrowded(placements []Placement) bool {
	for k, v := range t.views {
		if placements[k].Reason == NoRoom && v.demand-placements[k].Residual < v.least() {
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
func (t *together) full(placements []Placement) float64 {
	part := math.Inf(1)
	for k, v := range t.views {
		sum := v.filled()
		for _, x := range placements[k].Placed {
			sum += v.full(x.Config, x.Exec, x.Mean)
		}
		part = min(part, sum/max(v.demand, someLoad))
	}
	return part
}

// filled is the plan for what the views of t lack if nothing is kept for chance,
// and whether it serves more than t's placements.
func (p *pass) filled(views []*view, t *together, placements []Placement, need func(*view) float64) (*together, *room, []Placement, bool) {
	other, room := p.ask(views, thrift{crowded: true}, func(v *view) float64 {
		if need(v) <= 0 {
			return 0
		}
		return max(v.demand, someLoad) - v.filled()
	}), p.space().clone()
	instead := other.place(room)
	return other, room, instead, len(other.views) == len(t.views) && other.full(instead) > t.full(placements)*(1+balanceGain)
}
