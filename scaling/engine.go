package scaling

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Scale plans for all functions at once. The functions and nodes must show the effects
// of earlier plans: started instances as Starting, their room no longer free on the
// nodes, and stopped ones as Stopping or not at all. Times never go back. Scale forgets
// functions that are not among the arguments.
//
// Scale releases instances first. Only later plans use their room, when it shows as
// free. Every function that needs a first instance gets it before the load beyond R_max
// gets more (§3.2, case (i)), so one busy function does not keep others from starting.
// The plan does not depend on the order of the arguments.
//
// Between two plans under the same load nothing changes. An instance is released only
// if the others' R_max is not below the highest demand of the stabilisation window. One
// is started only if the demand is above R_max.
func (e *Engine) Scale(now time.Time, functions []Function, nodes []cluster.Node) Plan {
	p := &pass{engine: e, now: now, nodes: nodes, work: packing.NewWork(e.work)}
	sorted := e.sort(functions)
	p.views = e.observe(now, sorted)
	at := byName(nodes)
	for _, v := range p.views {
		appraise(v, at)
	}
	e.forget(sorted)
	for _, s := range steps {
		if s.all != nil {
			s.all(p)
			continue
		}
		for _, v := range p.views {
			for _, do := range s.each {
				do(p, v)
			}
		}
	}
	e.turns.end()
	return p.plan
}

// step is a part of a pass: it plans for all functions at once, or for each in turn.
type step struct {
	name string
	all  func(*pass)
	each []func(*pass, *view)
}

// steps are the parts of a pass in their order. Each sees what those before it have planned.
var steps = []step{
	{name: "divide the nodes among the functions", all: (*pass).divide},
	{name: "choose the variants that serve", all: prefer},
	{name: "stop what the load does not need", each: []func(*pass, *view){part, (*pass).release, reassignShadows}},
	{name: "unpark for requests that wait", each: []func(*pass, *view){func(p *pass, v *view) { p.unpark(v, v.wakes) }, (*pass).unparkOld}},
	{name: "start first instances", each: []func(*pass, *view){func(p *pass, v *view) {
		if !v.joint {
			p.first(v)
		}
	}}},
	{name: "grow beyond R_max", all: (*pass).grow},
	{name: "help and fill", each: []func(*pass, *view){helpWithoutRoom, (*pass).fill, (*pass).supersede}},
	{name: "merge, and reconsider variants", each: []func(*pass, *view){(*pass).merge, reconsider}},
	{name: "exchange for better places", all: (*pass).exchange},
	{name: "let the last instance serve until its successor does", all: overlap},
	{name: "sum up", all: sumUp},
}

// helpWithoutRoom starts shadows where no whole instance has room.
func helpWithoutRoom(p *pass, v *view) {
	if v.short == placing.NoRoom && !v.yielding && !v.retired {
		help(p, v)
	}
}

// sumUp says what part of its load each function's instances carry, and takes back what was planned
// for instances that the plan stops.
func sumUp(p *pass) {
	for _, v := range p.views {
		if v.steady > 0 && len(v.live) > 0 {
			p.plan.Carried = append(p.plan.Carried, Carried{v.Name, v.capacity() / v.steady, v.capacity()})
		}
	}
	if p.gone != nil {
		p.plan.Park = slices.DeleteFunc(p.plan.Park, func(x Park) bool { return p.gone[x.ID] })
		p.plan.Resize = slices.DeleteFunc(p.plan.Resize, func(x Resize) bool { return p.gone[x.ID] })
	}
}

// sort returns the functions by name. The next call overwrites them. Functions are large: it moves each once,
// and none if they are sorted already.
func (e *Engine) sort(functions []Function) []Function {
	sorted := true
	for i := 1; i < len(functions) && sorted; i++ {
		sorted = functions[i-1].Name < functions[i].Name
	}
	if sorted {
		return functions
	}
	e.order = e.order[:0]
	for i := range functions {
		e.order = append(e.order, named{functions[i].Name, i})
	}
	slices.SortFunc(e.order, func(a, b named) int { return cmp.Or(strings.Compare(a.name, b.name), a.index-b.index) })
	e.sorted = e.sorted[:0]
	for _, n := range e.order {
		e.sorted = append(e.sorted, functions[n.index])
	}
	return e.sorted
}

// forget drops the memory of functions that are gone.
func (e *Engine) forget(sorted []Function) {
	if len(e.memories) == len(sorted) {
		return
	}
	for name := range e.memories {
		_, known := slices.BinarySearchFunc(sorted, name, func(f Function, name string) int { return strings.Compare(f.Name, name) })
		if !known {
			delete(e.memories, name)
		}
	}
}

// first starts the first instance of a function that has none and needs one: at once for
// a waiting request, ahead of time for pre-warming.
func (p *pass) first(v *view) {
	if !v.wantsFirst() {
		return
	}
	d := v.wanted(max(v.demand, capacity.SomeLoad))
	d.Limit = v.Max
	left, why := p.space().Schedule(d, 1), whyStart(v)
	if left.Reason == placing.NoRoom && p.evict(v, d) {
		if p.unpark(v, v.wakes); len(v.live) > 0 {
			return
		}
		left = p.space().Schedule(d, 1)
	}
	p.start(v, left.Placed, why)
	if len(left.Placed) == 0 {
		p.unplaced(v, left)
	}
}

// grow is case (i) of §3.2: instances for the load beyond R_max.
func (p *pass) grow() {
	var joint []*view
	for _, v := range p.views {
		switch {
		case !v.mayGrow():
		case decides(v):
			serve(p, v)
		default:
			p.unpark(v, func() bool { return v.residual() > 0 })
			p.stretch(v)
		}
		switch {
		case v.joint && (v.mayGrow() || v.wantsFirst()):
			joint = append(joint, v)
		case !v.mayGrow():
		default:
			p.alone(v)
		}
	}
	p.jointly(joint)
}

// alone places the load that one function is short of, independently of others.
func (p *pass) alone(v *view) {
	residual := v.residual()
	if residual == 0 {
		return
	}
	left := p.more(v, residual)
	if left.Reason != placing.None && p.rearrange(v, left) {
		return
	}
	p.start(v, left.Placed, whyStart(v))
	if left.Reason != placing.None {
		p.unplaced(v, left)
	}
}

// fill starts instances up to the minimum number. If a function does not rest, fill also
// unparks instances for its recent peak load where there is room: a function seldom
// wakes for one request alone.
func (p *pass) fill(v *view) {
	if v.mayGrow() {
		p.unpark(v, func() bool { return v.count() < v.floor || !v.resting && len(v.live) > 0 && v.capacity() < v.peak })
	}
	for v.mayGrow() && v.count() < v.floor {
		left := p.space().Schedule(v.wanted(capacity.SomeLoad), 1)
		p.start(v, left.Placed, Minimum)
		if len(left.Placed) == 0 {
			p.unplaced(v, left)
		}
	}
}

// more places instances for a residual load within Max.
func (p *pass) more(v *view, residual float64) placing.Placement {
	d := v.wanted(residual)
	if v.Max > 0 {
		if d.Limit = v.Max - v.count(); d.Limit <= 0 {
			return placing.Placement{Residual: residual, Reason: placing.AtLimit}
		}
	}
	return p.space().Schedule(d, 0)
}
