package batching

import "math/bits"

// Set is a set of small numbers: one bit each in words, and one bit in summary for
// each word that is not zero. Finding the first of up to 4,096 reads two words.
type Set struct {
	words, summary []uint64
	n              int
}

// Has reports whether i is a member.
func (s *Set) Has(i int) bool { return i>>6 < len(s.words) && s.words[i>>6]&(1<<(i&63)) != 0 }

// Add makes i a member.
func (s *Set) Add(i int) {
	if s.Has(i) {
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

// Remove removes i.
func (s *Set) Remove(i int) {
	if !s.Has(i) {
		return
	}
	s.words[i>>6] &^= 1 << (i & 63)
	if s.words[i>>6] == 0 {
		s.summary[i>>12] &^= 1 << (i >> 6 & 63)
	}
	s.n--
}

// First is the least member, or -1.
func (s *Set) First() int {
	for i, w := range s.summary {
		if w != 0 {
			word := i<<6 + bits.TrailingZeros64(w)
			return word<<6 + bits.TrailingZeros64(s.words[word])
		}
	}
	return -1
}

// Len is the number of members.
func (s *Set) Len() int { return s.n }
