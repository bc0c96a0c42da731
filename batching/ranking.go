package batching

import "cmp"

// Ranking is a heap of slots by key, least first. Any slot can be changed or
// removed. Of equal keys the lowest slot is first.
type Ranking[K cmp.Ordered] struct {
	heap []ranked[K]
	// place is 1 + a slot's index in the heap, 0 if the slot is not in it.
	place []int
}

type ranked[K cmp.Ordered] struct {
	key  K
	slot int
}

// Len is the number of slots in the ranking.
func (r *Ranking[K]) Len() int { return len(r.heap) }

// Has reports whether the slot is in the ranking.
func (r *Ranking[K]) Has(slot int) bool { return slot < len(r.place) && r.place[slot] > 0 }

// First returns the slot with the least key; there must be one.
func (r *Ranking[K]) First() (slot int, key K) { return r.heap[0].slot, r.heap[0].key }

// Set adds the slot, or changes its key.
func (r *Ranking[K]) Set(slot int, key K) {
	for slot >= len(r.place) {
		r.place = append(r.place, 0)
	}
	i := r.place[slot] - 1
	if i < 0 {
		i = len(r.heap)
		r.heap = append(r.heap, ranked[K]{})
	}
	r.heap[i] = ranked[K]{key, slot}
	r.place[slot] = i + 1
	r.settle(i)
}

// Remove removes the slot if the ranking has it.
func (r *Ranking[K]) Remove(slot int) {
	if slot >= len(r.place) || r.place[slot] == 0 {
		return
	}
	i, last := r.place[slot]-1, len(r.heap)-1
	r.place[slot] = 0
	moved := r.heap[last]
	r.heap = r.heap[:last]
	if i < last {
		r.heap[i] = moved
		r.place[moved.slot] = i + 1
		r.settle(i)
	}
}

// settle restores the heap's order after the i-th entry changed.
func (r *Ranking[K]) settle(i int) {
	for i > 0 && r.less(i, (i-1)/2) {
		r.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r.heap); child++ {
			if r.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		r.swap(i, least)
		i = least
	}
}

func (r *Ranking[K]) less(i, j int) bool {
	a, b := &r.heap[i], &r.heap[j]
	return a.key < b.key || a.key == b.key && a.slot < b.slot
}

func (r *Ranking[K]) swap(i, j int) {
	r.heap[i], r.heap[j] = r.heap[j], r.heap[i]
	r.place[r.heap[i].slot], r.place[r.heap[j].slot] = i+1, j+1
}

// Move replaces every slot's key by by(slot, key).
func (r *Ranking[K]) Move(by func(slot int, key K) K) {
	for i := range r.heap {
		e := &r.heap[i]
		e.key = by(e.slot, e.key)
	}
	for i := len(r.heap) - 1; i >= 0; i-- {
		r.settle(i)
	}
}
