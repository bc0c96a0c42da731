package placing

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
)

// Allowed says where a function's instances may start: on which places of a room, and on devices that
// serve it. Its zero value allows all. It is valid for all clones of the room.
type Allowed struct {
	// on says, by place, whether they may start there; nil allows all places.
	on []bool
	// Tenant says which devices serve it.
	Tenant cluster.Tenant
}

// Only allows some places, by place.
func Only(on ...bool) Allowed { return Allowed{on: on} }

// Allowed returns the places of the named nodes in this room, for a function that is t.
func (r *Room) Allowed(nodes []string, t cluster.Tenant) Allowed {
	if nodes == nil {
		return Allowed{Tenant: t}
	}
	on := make([]bool, len(r.Places))
	for _, name := range nodes {
		if i, ok := r.Find(name); ok {
			on[i] = true
		}
	}
	return Allowed{on, t}
}

// Has reports whether instances may start on place i.
func (a Allowed) Has(i int) bool { return a.on == nil || a.on[i] }

// All reports whether instances may start on every place.
func (a Allowed) All() bool { return a.on == nil }

// List identifies the list of places: functions that share one have the same, nil for all places.
func (a Allowed) List() *bool {
	if len(a.on) == 0 {
		return nil
	}
	return &a.on[0]
}

// Any reports whether instances may start on any place.
func (a Allowed) Any() bool { return a.on == nil || slices.Contains(a.on, true) }

// fits reports whether an instance that takes need may start on place i and has room there.
func (r *Room) fits(i int, need cluster.Resources, on Allowed) bool {
	return on.Has(i) && r.Places[i].Fits(need, on.Tenant)
}
