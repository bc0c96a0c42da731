package batching

import "github.com/faas-infer/faas-infer/cluster"

// Slots numbers instances from 0 on, so their state can lie in slices. It gives out
// the lowest free number: numbers stay small, and they depend only on the order of
// events.
type Slots struct {
	of   map[cluster.InstanceID]int
	free Set
	// end is one past the highest number that was ever given.
	end int
}

// Find returns the number of id.
func (s *Slots) Find(id cluster.InstanceID) (slot int, known bool) {
	slot, known = s.of[id]
	return slot, known
}

// Give returns the number of id, a new one if it has none.
func (s *Slots) Give(id cluster.InstanceID) (slot int, known bool) {
	if slot, known = s.of[id]; known {
		return slot, true
	}
	if s.of == nil {
		s.of = map[cluster.InstanceID]int{}
	}
	if slot = s.free.First(); slot >= 0 {
		s.free.Remove(slot)
	} else {
		slot = s.end
		s.end++
	}
	s.of[id] = slot
	return slot, false
}

// Drop frees the number of id.
func (s *Slots) Drop(id cluster.InstanceID) {
	if slot, ok := s.of[id]; ok {
		delete(s.of, id)
		s.free.Add(slot)
	}
}

// Len is how many instances have a number.
func (s *Slots) Len() int { return len(s.of) }
