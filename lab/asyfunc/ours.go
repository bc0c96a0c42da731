package asyfunc

import (
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/lab/asyfunc/planning"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// keep is how long ours keeps an instance that is not needed.
const keep = 30 * time.Second

// ours is faas-infer: the fewest bodies whose quotas follow the load, and what helps them with
// the least memory that is there in time.
type ours struct {
	past      []float64
	predicted float64
	// over is when the function last needed all that it has.
	over time.Duration
}

func (c *ours) batching() string { return batching.SharedName }

func (c *ours) period(w *world, rate float64) {
	if w.now > 0 {
		c.past = append(c.past, rate)
	}
	c.predicted = planning.Recent(c.past)
	if w.now == 0 {
		c.add(w)
	}
}

func (c *ours) tick(w *world) {
	bodies := w.bodies()
	pairs := 0
	for _, b := range bodies {
		if b.Shadow != nil {
			pairs++
		}
	}
	now := w.instantaneous()
	need := max(now, c.last())
	h, ok := w.planner.Fit(need, len(bodies))
	if !ok && pairs > 0 {
		h.Cores, ok = w.planner.Quota(need, bodies, func(s *planning.Shadow) int { return w.instances[s.ID].granted })
	}
	for _, b := range bodies {
		w.resize(w.instances[b.ID], h.Cores, h.Rows)
	}
	if need = max(now, c.predicted); !ok && w.planner.Paired(bodies) < need {
		c.over = w.now
		c.add(w)
		return
	}
	c.shrink(w, need, bodies, pairs)
}

// last is the last period's rate.
func (c *ours) last() float64 { return planning.LastValue(c.past) }

// shrink stops a shadow or a body once the rest could have carried the load for a while.
func (c *ours) shrink(w *world, need float64, bodies []*planning.Body, pairs int) {
	rest := len(bodies)
	if pairs == 0 {
		rest--
	}
	if _, ok := w.planner.Fit(need, rest); rest == 0 || !ok {
		c.over = w.now
		return
	}
	// A shadow is there again in milliseconds.
	if over := w.now - c.over; over < keep && (pairs == 0 || over < w.planner.Settings.KeepAlive) {
		return
	}
	c.over = w.now
	for i := len(bodies) - 1; i >= 0; i-- {
		if in := w.instances[bodies[i].ID]; pairs == 0 {
			w.stop(in)
			return
		} else if in.Shadow != nil {
			w.unpair(in)
			return
		}
	}
}

// add starts what helps with the least memory.
func (c *ours) add(w *world) {
	var lone *planning.Body
	for _, b := range w.bodies() {
		if b.Shadow == nil && (lone == nil || w.nodes[b.Node].Cores > w.nodes[lone.Node].Cores) {
			lone = b
		}
	}
	var sites []planning.Site
	for i, n := range w.nodes {
		s := planning.Site{Node: n.Node, Index: i, Holds: n.bodies > 0, Here: lone != nil && lone.Node == i}
		s.Start = w.law.LoadFixed
		if !n.empty {
			s.Start += w.law.Start
		}
		sites = append(sites, s)
	}
	way, ok := w.planner.Help(sites, lone != nil, w.planner.Settings.SLO)
	if !ok {
		w.measure.shorts++
		return
	}
	if lone != nil && !way.Whole {
		w.pair(w.instances[lone.ID], w.planner.Outfit(way))
		return
	}
	ready := w.adopt(way.Node) + w.law.LoadFixed
	if w.planner.Settings.Memory == shadow.Own || w.nodes[way.Node].bodies == 0 {
		ready += way.Pair.Load
	}
	h, _ := w.planner.Fit(c.predicted, len(w.bodies())+1)
	w.body(way.Node, way.Cores, h.Rows, 0, ready)
	w.measure.twins++
}
