package batching

import (
	"math/bits"

	"github.com/faas-infer/faas-infer/cluster"
)

// slots numbers instances from 0 on, so that what is known of them lies in
// slices. The lowest number that is free is given next: numbers stay small, and
// they depend on nothing but the order of what happened.
type slots struct {
	of   map[cluster.InstanceID]int
	free set
	// end is one past the highest number that was ever given.
	end int
}

// find returns the number of id.
func (s *slots) find(id cluster.InstanceID) (slot int, known bool) {
	slot, known = s.of[id]
	return slot, known
}

// give returns the number of id, a new one if it has none.
func (s *slots) give(id cluster.InstanceID) (slot int, known bool) {
	if slot, known = s.of[id]; known {
		return slot, true
	}
	if s.of == nil {
		s.of = map[cluster.InstanceID]int{}
	}
	if slot = s.free.first(); slot >= 0 {
		s.free.remove(slot)
	} else {
		slot = s.end
		s.end++
	}
	s.of[id] = slot
	return slot, false
}

// drop takes the number back.
func (s *slots) drop(id cluster.InstanceID) {
	if slot, ok := s.of[id]; ok {
		delete(s.of, id)
		s.free.add(slot)
	}
}

func (s *slots) len() int { return len(s.of) }

// set is a set of small numbers: a bit each in words, and a bit in summary for
// each word that is not zero. To find the first of up to 4,096 takes two looks.
type set struct {
	words, summary []uint64
	n              int
}

func (s *set) has(i int) bool { return i>>6 < len(s.words) && s.words[i>>6]&(1<<(i&63)) != 0 }

func (s *set) add(i int) {
	if s.has(i) {
		return
	}
	for i>>6 >= len(s.words) {
		s.words = append(s.words, 0)
	}
	for i>>12 >= len(s.summary) {
		s.summary = append(s.summary, 0)
	}
	s.words[i>>6] |= 1 << (i & 63)
	s.summary[i>>12] |= 1 << (i >> 6 & 63)
	s.n++
}

func (s *set) remove(i int) {
	if !s.has(i) {
		return
	}
	s.words[i>>6] &^= 1 << (i & 63)
	if s.words[i>>6] == 0 {
		s.summary[i>>12] &^= 1 << (i >> 6 & 63)
	}
	s.n--
}

// first is the least member, or -1.
func (s *set) first() int {
	for i, w := range s.summary {
		if w != 0 {
			word := i<<6 + bits.TrailingZeros64(w)
			return word<<6 + bits.TrailingZeros64(s.words[word])
		}
	}
	return -1
}
