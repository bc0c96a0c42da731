package placing

import (
	"fmt"
	"math"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Placed is one instance that Algorithm 1 placed.
type Placed struct {
	capacity.Candidate
	// Node is where it is. A set over several nodes has its members' Nodes, by member; Node is
	// then the first one's.
	Node  string
	Nodes []string
	// Device is the GPU of which it has a share, by UUID; "" if it has none, or if the node does
	// not list its devices.
	Device string
	Range  capacity.Range
	// Efficiency is e_ij of Eq. 10, with the numerator normalised to [0, 1].
	Efficiency float64
}

// Reason is the reason for unplaced load.
type Reason int

// The reasons.
const (
	// None: all load was placed.
	None Reason = iota
	// NoConfig: no config meets the SLO.
	NoConfig
	// NoRoom: no node has room for any config that meets the SLO.
	NoRoom
	// AtLimit: no more instances are allowed.
	AtLimit
	// NoNode: there is no node on which the function may have instances.
	NoNode
)

// Placement is the result of Algorithm 1.
type Placement struct {
	Placed []Placed
	// Residual is the unplaced load in requests per second, 0 if there is none. Reason says
	// why.
	Residual float64
	Reason   Reason
	// Fastest is the config with the shortest time, if Reason is NoConfig and there are
	// configs.
	Fastest capacity.Candidate
	// Lack says which members had no room, if Reason is NoRoom and there are sets to choose from.
	Lack Lack
}

// Explain returns a sentence that says why load is unplaced.
func (p Placement) Explain(slo time.Duration) string {
	switch {
	case p.Reason == NoConfig && p.Fastest.Exec > 0:
		return fmt.Sprintf("no config meets the SLO of %v: the fastest, %v, takes %v", slo, p.Fastest.Config, p.Fastest.Exec)
	case p.Reason == NoConfig:
		return "there is no config to choose from"
	case p.Reason == NoNode:
		return "there is no node on which the function may run"
	case p.Reason == NoRoom && p.Lack.Of > 0:
		return fmt.Sprintf("%v; %s requests/s more need one", p.Lack, p.residual())
	case p.Reason == NoRoom:
		return fmt.Sprintf("no node has room for %s requests/s more", p.residual())
	case p.Reason == AtLimit:
		return fmt.Sprintf("the maximum number of instances cannot take %s more requests/s", p.residual())
	}
	return "everything is placed"
}

// residual is the load without room, without digits that say nothing.
func (p Placement) residual() string {
	if p.Residual >= 100 {
		return fmt.Sprintf("%.0f", p.Residual)
	}
	return fmt.Sprintf("%.3g", p.Residual)
}

// Schedule is Algorithm 1. It places instances for d's load on the nodes, one by one, each with
// the config and on the node of the highest Eq. 10, until the load is placed or nothing more
// fits. A set for which no node has room may go to several. It does not change nodes. The config and the node's name decide between equal
// efficiencies, never the order of the arguments.
func Schedule(d capacity.Demand, nodes []cluster.Node, o capacity.Options) Placement {
	return New(nodes, o).Schedule(d, 0)
}

// Schedule is Algorithm 1 on the room, which it takes. It stops after most instances if most is
// not 0.
func (r *Room) Schedule(d capacity.Demand, most int) Placement {
	if !(d.RPS > 0) {
		return Placement{}
	}
	d.RPS = min(d.RPS, math.MaxFloat32) // Infinity minus an instance's rate would stay infinity.
	p := Placement{Residual: d.RPS}
	choices := r.Options.Choices(d)
	if len(choices) == 0 {
		p.Reason, p.Fastest = NoConfig, capacity.Fastest(d.Configs)
		return p
	}
	allowed := r.Allowed(d.Nodes, d.Tenant)
	if !allowed.Any() {
		p.Reason = NoNode
		return p
	}
	for most == 0 || len(p.Placed) < most {
		if d.Limit > 0 && len(p.Placed) >= d.Limit {
			p.Reason = AtLimit
			return p
		}
		share := 0.0
		if d.Limit > 0 {
			share = p.Residual / float64(d.Limit-len(p.Placed))
		}
		best, ok := r.pick(choices, allowed, p.Residual, share, d.Queue)
		if !ok {
			best, ok = r.pickSet(choices, allowed, p.Residual, share)
		}
		if !ok {
			p.Reason, p.Lack = NoRoom, r.Lack(choices, allowed)
			return p
		}
		p.Placed = append(p.Placed, r.put(&best, allowed))
		p.Residual -= best.Range.Up // line 14
		if p.Residual <= capacity.Negligible*d.RPS {
			p.Residual = 0
			return p
		}
	}
	return p
}
