package scaling

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

// Settings configure the auto-scaling engine.
type Settings struct {
	capacity.Options
	// Alpha and Reading determine the load below which instances are released (§3.2,
	// Eq. 7).
	Alpha   float64
	Reading capacity.Reading
	// Headroom is added to the measured load, as a part of it: at r_up exactly, queues
	// of requests that come at random never empty.
	Headroom float64
	// Stabilisation is how long a lower load must last before instances are released.
	// The remaining ones must carry the highest demand of this window, as with
	// Knative's stable window and the stabilisation window of Kubernetes' horizontal
	// autoscaler.
	Stabilisation time.Duration
	// Burst replaces Stabilisation for demand that comes from waiting requests alone,
	// for functions that are planned jointly. 0 means Stabilisation.
	Burst time.Duration
	// EvictIdle is how long an instance must have been idle before it makes room for a
	// function that has none.
	EvictIdle time.Duration
	// EvictLoads is how long, in multiples of the time that it took to load, an instance
	// must have been idle before it makes room for such a function, if that is more than
	// EvictIdle. See Running.lives and view.patient.
	EvictLoads float64
	// KeepAlive, if not 0, replaces the rule of surplus (§3.2, case (iii)): an instance
	// is released once it has been idle for that long, as with OpenFaaS' fixed
	// keep-alive.
	KeepAlive time.Duration
}

// DefaultSettings returns the provider's settings.
func DefaultSettings() Settings {
	return Settings{
		Options: capacity.Production(), Alpha: 0.8, Headroom: 0.1,
		Stabilisation: time.Minute, Burst: 15 * time.Second, EvictIdle: time.Second, EvictLoads: 2,
	}
}

// maxWork is how many steps the joint plans of a pass may take: about 0.6 s. A hundred functions
// hardly ever take as many. With more functions plans become rougher, but leave none out.
const maxWork = 600_000_000

// Engine is the auto-scaling engine (§3.1, §3.2). It remembers each function's demand
// for the stabilisation window, and when it last looked for better arrangements. It
// serves one caller at a time.
type Engine struct {
	settings Settings
	memories map[string]*memory
	// exchanges says when the engine next tries to exchange instances for better ones.
	exchanges joint.Patience
	// clock is the worth of the instances that made room last; see worth.
	clock float64
	// turns are those of the functions whose variants may be exchanged.
	turns queueOfTurns
	// crowded is when load was last left unplaced because there was no room.
	crowded time.Time
	// work is how many steps the joint plans of a pass may take together.
	work int
	// order, sorted, views and pointers are buffers that passes reuse.
	order    []named
	sorted   []Function
	views    []view
	pointers []*view
}

// memory is what the engine remembers of a function.
type memory struct {
	Peak
	// bursts has the highest demands, waiting requests included. cold is the time since
	// which requests wait that found no ready instance.
	bursts Peak
	cold   time.Time
	patience
	capacity.Recall
	// rearranged is when its instances were last exchanged for others.
	rearranged time.Time
	departure  departure
	worths     map[cluster.InstanceID]worth
	preference preference
	// merged is when one of its instances last made room for another.
	merged time.Time
}

// New returns an engine without memory.
func New(s Settings) *Engine {
	return &Engine{settings: s, memories: map[string]*memory{}, work: maxWork}
}

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
			p.plan.Carried = append(p.plan.Carried, Carried{v.Name, v.capacity() / v.steady})
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

// named is the name and the index of a function.
type named struct {
	name  string
	index int
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

// pass is one call of Scale.
type pass struct {
	engine *Engine
	now    time.Time
	nodes  []cluster.Node
	// room is what space returns.
	room  *placing.Room
	views []*view
	// gone has the instances that the plan stops.
	gone map[cluster.InstanceID]bool
	plan Plan
	// places has the places of lists of nodes: functions with equal constraints share a list.
	places map[list]placing.Allowed
	// work bounds the work of joint plans.
	work *packing.Work
	// patient and impatient are what victims returns, nil before that and after a change.
	patient, impatient [][]victim
}

// space returns the nodes' room. It builds it only when needed: most passes change
// nothing.
func (p *pass) space() *placing.Room {
	if p.room == nil {
		p.room = placing.New(p.nodes, p.engine.settings.Options)
	}
	return p.room
}

// list is a list of nodes, told apart by where it is.
type list struct {
	first *string
	nodes int
}

// allowed returns the places where v's instances may start.
func (p *pass) allowed(v *view) placing.Allowed {
	if v.Nodes != nil && v.allowed.All() {
		at := list{nodes: len(v.Nodes)}
		if at.nodes > 0 {
			at.first = &v.Nodes[0]
		}
		known, ok := p.places[at]
		if !ok {
			if p.places == nil {
				p.places = map[list]placing.Allowed{}
			}
			known = p.space().Allowed(v.Nodes, v.Tenant)
			p.places[at] = known
		}
		v.allowed = known
	}
	v.allowed.Tenant = v.Tenant
	return v.allowed
}

// changed must be called before an instance of v is changed or removed.
func (p *pass) changed(v *view) {
	v.changed()
	p.patient, p.impatient = nil, nil
}

// stop plans to stop an instance of v. Scale leaves out what else the plan has for it.
func (p *pass) stop(v *view, in Running, why Why) {
	if p.gone == nil {
		p.gone = map[cluster.InstanceID]bool{}
	}
	p.gone[in.ID] = true
	p.plan.Stop = append(p.plan.Stop, Stop{v.Name, in.ID, reasonOf(v, why).ofIdle(p.now, &in)})
	p.changed(v)
	v.remove(in.ID)
	for _, s := range slices.Clone(v.shadows) {
		if s.Body == in.ID && !v.current(&s) {
			stopShadow(p, v, s, why)
		}
	}
}

// start plans the starts of instances that were placed for v.
func (p *pass) start(v *view, placed []placing.Placed, why Why) {
	reason := reasonOf(v, why)
	for _, x := range placed {
		s := Start{
			Function: v.Name, Revision: v.Revision, Artefact: x.Artefact, Config: x.Config, Exec: x.Exec, Mean: x.Mean,
			Node: x.Node, Nodes: x.Nodes, Device: x.Device, Timeout: x.Timeout, Reason: reason,
		}
		s.After = leavingAny(p, &x)
		p.plan.Start = append(p.plan.Start, s)
		v.started++
		if v.startedUp += x.Range.Up; v.sets != nil {
			v.startedOf = append(v.startedOf, startedUp{x.Artefact, x.Range.Up})
		}
	}
	for v.Max > 0 && len(v.parked) > 0 && v.all()+v.started > v.Max {
		p.stop(v, v.parked[0], OverMax)
	}
}

// leaving returns the instances on a place that the plan stops and whose room it gives
// out again.
func (p *pass) leaving(place int) (ids []cluster.InstanceID) {
	for _, id := range p.space().Places[place].Leaving {
		if p.gone[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// leavingAny is leaving for all places of an instance.
func leavingAny(p *pass, x *placing.Placed) (ids []cluster.InstanceID) {
	for node := range cluster.Over(x.Node, x.Nodes, x.Config.Resources) {
		if i, ok := p.space().Find(node); ok {
			for _, id := range p.leaving(i) {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
		}
	}
	return ids
}

// unplaced reports the load that a placement left over.
func (p *pass) unplaced(v *view, left placing.Placement) {
	if v.short = left.Reason; left.Reason == placing.NoRoom {
		p.engine.crowded = p.now
	}
	p.plan.Unplaced = append(p.plan.Unplaced, Unplaced{v.Name, left.Residual, left.Reason, left.Explain(v.SLO)})
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
			if v.ShadowsFirst {
				help(p, v)
			}
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
