package placing

import "slices"

// Allowed tells, by place of a room, where a function's instances may start; nil
// allows all places. It holds for all clones of the room.
type Allowed []bool

// Allowed is what a function's nodes are in this room.
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

// Any reports whether there is a place at all.
func (a Allowed) Any() bool { return a == nil || slices.Contains(a, true) }
