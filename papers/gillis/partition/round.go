package partition

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
)

// timer times rounds on a platform. It keeps the tables of the network's noise, and memory
// that one round after the other uses.
type timer struct {
	p      *Platform
	noises delay.Noises
	calls  []call
	sent   []int
	delays []delay.Delay
}

// call is one worker's part of a round.
type call struct {
	part *Part
	// index is the part's index.
	index int
	trip  delay.RoundTrip
	// after is the mean time from the end of the send until the answer is back.
	after float64
	// ready is when the answer is back on average.
	ready float64
}

func newTimer(p *Platform) *timer { return &timer{p: p, noises: delay.Noises{}} }

// prepare lists the calls of a round in the order in which the master sends: the part that
// takes longest after its send goes first, which makes the last answer come earliest.
func (t *timer) prepare(parts []Part, master int) []call {
	t.calls = t.calls[:0]
	crowded := t.p.crowded(len(parts))
	for i := range parts {
		if i == master {
			continue
		}
		part := &parts[i]
		trip := t.p.Transfer.RoundTrip(part.In, part.Out)
		t.calls = append(t.calls, call{part: part, index: i, trip: trip, after: trip.Moments().Mean + t.p.worker(part, crowded)})
	}
	slices.SortStableFunc(t.calls, func(a, b call) int { return cmp.Compare(b.after, a.after) })
	return t.calls
}

// order returns the indices of the workers' parts as the master sends them. They hold until
// the next call.
func (t *timer) order(parts []Part, master int) []int {
	t.sent = t.sent[:0]
	for _, c := range t.prepare(parts, master) {
		t.sent = append(t.sent, c.index)
	}
	return t.sent
}

// round returns the distribution of a round's time, which holds until the next call.
//
// The master encodes one input after another, then computes its own part, then decodes the
// answers in the order in which they come. A worker's answer is there after its send, the
// way there and back, and what the worker does. The round ends when the last answer is
// decoded. If the answers come in the order of their means, this end is exactly the largest
// of independent times: for each answer, its arrival and the decoding of it and those after
// it; and for the master, its own work and the decoding of all.
func (t *timer) round(parts []Part, master int) delay.Largest {
	calls := t.prepare(parts, master)
	own, left := 0.0, 0.0
	for i := range calls {
		c := &calls[i]
		own += t.p.encode(c.part.In)
		c.ready = own + c.after
		left += t.p.decode(c.part.Out)
	}
	if master != Nobody {
		own += t.p.crowded(len(parts)) * parts[master].Compute
	}
	slices.SortStableFunc(calls, func(a, b call) int { return cmp.Compare(a.ready, b.ready) })
	l := delay.Largest{Floor: own + left, Delays: t.delays[:0]}
	for _, c := range calls {
		l.Delays = append(l.Delays, delay.Delay{Mean: c.ready + left, Noise: t.noises.Of(c.trip)})
		left -= t.p.decode(c.part.Out)
	}
	t.delays = l.Delays
	return l
}

// RoundTime returns the distribution of the time of a round in which the master computes
// the part with index master, or none if that is Nobody.
func (p *Platform) RoundTime(parts []Part, master int) delay.Largest {
	return newTimer(p).round(parts, master)
}
