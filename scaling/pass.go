package scaling

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/packing"
	"github.com/faas-infer/faas-infer/scaling/placing"
)

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

// list is a list of nodes, told apart by where it is.
type list struct {
	first *string
	nodes int
}

// space returns the nodes' room. It builds it only when needed: most passes change
// nothing.
func (p *pass) space() *placing.Room {
	if p.room == nil {
		p.room = placing.New(p.nodes, p.engine.settings.Options)
	}
	return p.room
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

// stopShadow plans to stop a shadow. Its body then counts as alone.
func stopShadow(p *pass, v *view, s Running, why Why) {
	if p.gone == nil {
		p.gone = map[cluster.InstanceID]bool{}
	}
	p.gone[s.ID] = true
	p.plan.Pair = slices.DeleteFunc(p.plan.Pair, func(x Pair) bool { return x.ID == s.ID })
	p.plan.Stop = append(p.plan.Stop, Stop{v.Name, s.ID, reasonOf(v, why)})
	v.shadows = slices.DeleteFunc(v.shadows, func(x Running) bool { return x.ID == s.ID })
	p.changed(v)
	if i := bodyOf(v, &s); i >= 0 {
		v.live[i].pairing = nil
	}
}

// bodyOf is the index of a shadow's body among the live instances, -1 if it is not there or cannot
// have shadows.
func bodyOf(v *view, s *Running) int {
	return slices.IndexFunc(v.live, func(in Running) bool { return in.ID == s.Body && in.Paired })
}

// start plans the starts of instances that were placed for v.
func (p *pass) start(v *view, placed []placing.Placed, why Why) {
	reason := reasonOf(v, why)
	for _, x := range placed {
		if v.Queue == capacity.LateBound {
			x.Candidate = p.engine.settings.Options.Grown(x.Candidate, v.Configs, v.SLO)
		}
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

// victim is an instance that could make room.
type victim struct {
	Running
	// here is what it holds on the node of whose list it is.
	here cluster.Resources
	view *view
	// tier is shadowTier for shadows, 0 for idle instances, 1 for those beyond their function's
	// first, 2 for the function's own older revision.
	tier int
	// worth is that of an idle instance, or how much a shadow helps.
	worth float64
}
