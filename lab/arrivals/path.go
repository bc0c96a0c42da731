package arrivals

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Segment is a stretch of time in which the rate changes linearly.
type Segment struct {
	// For is the segment's length, [Forever] for the last of a path without an end.
	For time.Duration
	// From and To are the rates in requests/s at its beginning and its end.
	From, To float64
}

func (s Segment) check() error {
	for _, rate := range []float64{s.From, s.To} {
		if err := checkRate(rate); err != nil {
			return err
		}
	}
	if s.For <= 0 {
		return fmt.Errorf("a segment of %v: it must last longer than 0", s.For)
	}
	if s.For == Forever && s.From != s.To {
		return errors.New("a segment without an end cannot change its rate")
	}
	return nil
}

// Path arrives with the given gaps at rates that follow the segments, one after the other.
// It ends with the last segment.
func Path(segments []Segment, gaps Gaps, seed uint64) (Process, error) {
	if len(segments) == 0 {
		return nil, errors.New("a path of rates needs a segment")
	}
	for i, s := range segments {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("segment %d: %w", i+1, err)
		}
	}
	return newModulated(func() course { return &list{segments} }, gaps, seed), nil
}

// course yields the segments of a process.
type course interface {
	next() (s Segment, ok bool)
}

type list struct{ rest []Segment }

func (l *list) next() (Segment, bool) {
	if len(l.rest) == 0 {
		return Segment{}, false
	}
	s := l.rest[0]
	l.rest = l.rest[1:]
	return s, true
}

// cursor walks along a path.
type cursor struct {
	path    course
	begin   time.Duration // of the segment, from the start of the process
	segment Segment
	length  float64 // of the segment, in seconds
	slope   float64 // requests/s per second
	ended   bool
}

func newCursor(p course) cursor {
	c := cursor{path: p}
	c.step(0)
	return c
}

// step moves to the next segment, which begins at begin.
func (c *cursor) step(begin time.Duration) {
	s, ok := c.path.next()
	c.begin, c.segment, c.ended = begin, s, !ok
	c.length = min(s.For, Forever-begin).Seconds()
	c.slope = (s.To - s.From) / max(1e-9, s.For.Seconds())
}

// end returns the time at which the segment ends, at most Forever.
func (c *cursor) end() time.Duration {
	if c.segment.For > Forever-c.begin {
		return Forever
	}
	return c.begin + c.segment.For
}

// modulated is a path of rates with gaps of mean 1.
type modulated struct {
	at   cursor
	into float64 // seconds into the segment
	gaps Gaps
	rng  *rand.Rand
	left float64 // the rest of the current gap; the first begins before the start

	look cursor // Rate's own cursor
}

func newModulated(paths func() course, gaps Gaps, seed uint64) *modulated {
	m := &modulated{at: newCursor(paths()), look: newCursor(paths()), gaps: gaps, rng: generator(seed, streamGaps)}
	m.left = gaps.draw(m.rng)
	if gaps.even {
		m.left = 1 - m.rng.Float64()
	}
	return m
}

// Next implements [Process].
func (m *modulated) Next() (time.Duration, bool) {
	for !m.at.ended {
		at := &m.at
		rate := max(0, at.segment.From+at.slope*m.into)
		rest := at.length - m.into
		mass := max(0, rest*(rate+at.slope*rest/2))
		if m.left <= mass && mass > 0 {
			m.into = min(at.length, m.into+advance(rate, at.slope, m.left))
			m.left = m.gaps.draw(m.rng)
			return at.begin + min(time.Duration(m.into*float64(time.Second)), at.end()-at.begin), true
		}
		m.left -= mass
		if at.end() == Forever {
			at.ended = true
			break
		}
		at.step(at.end())
		m.into = 0
	}
	return 0, false
}

// advance returns the seconds in which mass requests arrive at a rate that begins at rate
// and changes by slope a second: τ with rate·τ + slope·τ²/2 = mass. It uses the form of
// the solution without cancellation.
func advance(rate, slope, mass float64) float64 {
	if slope == 0 {
		return mass / rate
	}
	return 2 * mass / (rate + math.Sqrt(max(0, rate*rate+2*slope*mass)))
}

// Rate implements [Process].
func (m *modulated) Rate(at time.Duration) float64 {
	for !m.look.ended && at >= m.look.end() && m.look.end() != Forever {
		m.look.step(m.look.end())
	}
	if m.look.ended || at < m.look.begin {
		return 0
	}
	return m.look.segment.From + m.look.slope*(at-m.look.begin).Seconds()
}
