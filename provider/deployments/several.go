package deployments

import (
	"context"
	"maps"
	"sync"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// Group is what a replica of the provider knows of the others; *peer.Group is one.
type Group interface {
	Peers
	// Drain and Park are control.Peers', for models only.
	Drain(ctx context.Context, id cluster.InstanceID)
	Park(ctx context.Context, id cluster.InstanceID) bool
}

// Among lets the controllers of both kinds of functions ask the same group: batches
// that were executed, which the group tells once, are told to that of models,
// whoever asks first.
func Among(g Group) (models Group, ordinary Peers) {
	t := &telling{Group: g, executed: map[string][]peer.Executed{}}
	return modelPeers{t}, t
}

// telling is a group asked by two. As it is it is for who wants no batches.
type telling struct {
	Group
	mu sync.Mutex
	// executed is what models have not been told yet, by the replica's boot.
	executed map[string][]peer.Executed
}

// mostExecuted bounds what is kept of one replica for a controller that does not
// ask.
const mostExecuted = 10000

// Loads implements [Peers].
func (t *telling) Loads() []peer.Load {
	t.mu.Lock()
	defer t.mu.Unlock()
	loads := t.Group.Loads()
	for i := range loads {
		l := &loads[i]
		if kept := append(t.executed[l.Boot], l.Executed...); len(kept) > 0 {
			t.executed[l.Boot] = kept[max(0, len(kept)-mostExecuted):]
		}
		l.Executed = nil
	}
	return loads
}

type modelPeers struct{ *telling }

// Loads implements [Peers], with what was executed.
func (m modelPeers) Loads() []peer.Load {
	m.mu.Lock()
	defer m.mu.Unlock()
	loads := m.Group.Loads()
	for i := range loads {
		l := &loads[i]
		l.Executed = append(m.executed[l.Boot], l.Executed...)
	}
	clear(m.executed)
	return loads
}

// Join is what a replica tells the others of functions of both kinds.
func Join(models peer.Local, ordinary *Controller) peer.Local { return joined{models, ordinary} }

// joined takes everything to models' controller but what both have.
type joined struct {
	peer.Local
	ordinary *Controller
}

// Load implements [peer.Local]. A function is of one kind at a time, or was of the
// other until just now.
func (j joined) Load(since uint64) peer.Load {
	l := j.Local.Load(since)
	all := maps.Clone(l.Functions)
	if all == nil {
		all = map[string]peer.FunctionLoad{}
	}
	for name, of := range j.ordinary.Loads() {
		if model, both := all[name]; both {
			of.Arrivals += model.Arrivals
			of.Cold += model.Cold
			of.Waiting += model.Waiting
			of.InFlight += model.InFlight
			of.Idle = model.Idle
		}
		all[name] = of
	}
	l.Functions = all
	return l
}

// Wake implements [peer.Local].
func (j joined) Wake() {
	j.Local.Wake()
	j.ordinary.Wake()
}
