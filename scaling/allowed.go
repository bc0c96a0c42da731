package scaling

import (
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/packing"
)

// allowed tells, by place of a room, where a function's instances may start; nil
// allows all places. It holds for all clones of the room.
type allowed []bool

// allowed is what a function's nodes are in this room.
func (r *room) allowed(nodes []string) allowed {
	if nodes == nil {
		return nil
	}
	on := make(allowed, len(r.places))
	for _, name := range nodes {
		if i, ok := r.find(name); ok {
			on[i] = true
		}
	}
	return on
}

// has reports whether instances may start on place i.
func (a allowed) has(i int) bool { return a == nil || a[i] }

// any reports whether there is a place at all.
func (a allowed) any() bool { return a == nil || slices.Contains(a, true) }

// allowed is where v's instances may start.
func (p *pass) allowed(v *view) allowed {
	if v.Nodes != nil && v.allowed == nil {
		v.allowed = p.space().allowed(v.Nodes)
	}
	return v.allowed
}

// barred tells, by demand, what may not be on a place; nil if all may.
func (t *together) barred(place int) (barred []bool) {
	for k, on := range t.allowed {
		if on.has(place) {
			continue
		}
		if barred == nil {
			barred = make([]bool, len(t.allowed))
		}
		barred[k] = true
	}
	return barred
}

// zones numbers the places by what they bar.
func (t *together) zones(places int) (of []int, barred [][]bool) {
	of = make([]int, places)
	if !slices.ContainsFunc(t.allowed, func(a allowed) bool { return a != nil }) {
		return of, [][]bool{nil}
	}
	for i := range of {
		here := t.barred(i)
		if of[i] = slices.IndexFunc(barred, func(b []bool) bool { return slices.Equal(b, here) }); of[i] < 0 {
			of[i] = len(barred)
			barred = append(barred, here)
		}
	}
	return of, barred
}

// fits reports whether an item of a demand that is not barred fits into a room.
func (t *together) fits(free cluster.Resources, barred []bool) bool {
	return slices.ContainsFunc(t.items, func(it packing.Item) bool {
		return it.Need.Fits(free) && (barred == nil || !barred[it.Demand])
	})
}
