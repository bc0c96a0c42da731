package placing

import "slices"

// Allowed says, by place of a room, whether a function's instances may start there; nil allows
// all places. It is valid for all clones of the room.
type Allowed []bool

// Allowed returns the places of the named nodes in this room.
func (r *Room) Allowed(nodes []string) Allowed {
	if nodes == nil {
		return nil
	}
	on := make(Allowed, len(r.Places))
	for _, name := range nodes {
		if i, ok := r.Find(name); ok {
			on[i] = true
		}
	}
	return on
}

// Has reports whether instances may start on place i.
func (a Allowed) Has(i int) bool { return a == nil || a[i] }

// Any reports whether instances may start on any place.
func (a Allowed) Any() bool { return a == nil || slices.Contains(a, true) }
