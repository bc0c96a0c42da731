package history

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Saved returns a series for [Restore], in a few KiB: most of its numbers are small.
func (s *Series) Saved() []byte {
	out := binary.AppendUvarint(nil, uint64(len(s.distributions)))
	s.exchange(func(n uint64) uint64 {
		out = binary.AppendUvarint(out, n)
		return n
	})
	return out
}

// Restore returns a series that [Series.Saved] has saved in an earlier run of the provider, whose counters begin at 0
// again. bounds and first are those of [New]. It fails if the text is damaged, or of a provider with other buckets.
func Restore(text []byte, bounds []float64, first Sample) (*Series, error) {
	s := New(0, bounds, first)
	damaged := false
	next := func(uint64) uint64 {
		n, size := binary.Uvarint(text)
		if size <= 0 {
			damaged = true
			return 0
		}
		text = text[size:]
		return n
	}
	if n := next(0); n != uint64(len(s.distributions)) {
		return nil, fmt.Errorf("a history with %d buckets: it must have %d", n, len(s.distributions))
	}
	s.exchange(next)
	if damaged || len(text) > 0 || s.began < 0 || s.at < s.began {
		return nil, errors.New("a history is damaged")
	}
	return s, nil
}

// EndsBefore reports whether the latest reading is of an earlier second, so that another can be added.
func (s *Series) EndsBefore(at int64) bool { return s.at < at }

// exchange gives each number that is saved to a function, and sets it to what that returns. Readings of counters are not
// among them.
func (s *Series) exchange(with func(uint64) uint64) {
	for _, at := range []*int64{&s.began, &s.at} {
		*at = int64(with(uint64(*at)))
	}
	for i := range s.fine {
		s.fine[i].exchange(with)
		s.wrong[i] = uint32(with(uint64(s.wrong[i])))
	}
	for i := range s.coarse {
		s.coarse[i].exchange(with)
	}
	for i := range s.distributions {
		s.distributions[i] = uint32(with(uint64(s.distributions[i])))
	}
	for _, c := range []*Counts{&s.minute, &s.hour} {
		for _, n := range []*uint64{&c.Arrived, &c.InTime, &c.Late, &c.Refused, &c.Failed, &c.Wrong} {
			*n = with(*n)
		}
	}
}

func (x *slot) exchange(with func(uint64) uint64) {
	for _, n := range []*uint32{&x.arrived, &x.inTime, &x.late, &x.refused, &x.failed} {
		*n = uint32(with(uint64(*n)))
	}
	for _, n := range []*short{&x.p50, &x.p99, &x.carries, &x.cost} {
		*n = short(with(uint64(*n)))
	}
	for _, n := range []*uint16{&x.waiting, &x.instances} {
		*n = uint16(with(uint64(*n)))
	}
}
