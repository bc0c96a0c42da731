package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/batching"
)

// Peer is a ready instance: the batching policy's view of it, and its true times.
type Peer struct {
	// Truth[b-1] is the true mean time of a batch of b.
	Truth []time.Duration
	// Quota is its CPU quota.
	Quota Quota
	// Device, if not nil, executes one batch at a time, of all instances that have it.
	Device *Device
	batching.Instance
}

// Device executes the batches of several instances one after the other.
type Device struct{ freeAt time.Duration }

// Use is an instance's work in the measured window since it came up.
type Use struct {
	// Busy is the time of its executions.
	Busy time.Duration
	// Served is the number of its requests.
	Served uint64
}

// Ready observes an instance that is up.
type Ready interface {
	// IdleSince returns the time since which it has been idle. idle is false if it is
	// busy.
	IdleSince() (since time.Duration, idle bool)
	// Used returns its use since it came up.
	Used() Use
	// Executed returns the time of all its executions, and the time of these that was
	// expected; both 0 if unknown.
	Executed() (busy, expected time.Duration)
}

// IdleSince implements [Ready].
func (p *peer) IdleSince() (since time.Duration, idle bool) { return p.idleSince, p.inFlight == 0 }

// BusyUntil returns the time until which it executes what it has: [Use] counts executions in
// advance.
func (p *peer) BusyUntil() time.Duration { return p.freeAt }

// Used implements [Ready].
func (p *peer) Used() Use { return p.use }

// Executed implements [Ready].
func (p *peer) Executed() (busy, expected time.Duration) { return p.busy, p.expected }

// peer is an instance with its work. The fields that every batch needs are adjacent: of
// thousands of instances, few are in the processor's cache.
type peer struct {
	slot int32
	// up is false once it takes no new batch, and while it is parked.
	up, parked bool
	inFlight   int
	use        Use
	// freeAt is the time when it has executed all its batches, idleSince the time of its
	// last answer.
	freeAt, idleSince time.Duration
	busy, expected    time.Duration
	budget            budget
	// spare is the time from which its idle time counts for refused requests.
	spare time.Duration
	// flights are the batches that are not answered yet, the first one first, if somebody learns.
	flights []execution
	// An instance that executes k batches at the same time has k-1 further streams, each with
	// its own slot, freeAt and ID. Their work counts with the instance, of.
	of      *peer
	streams []*peer
	Peer
}

// whole returns the instance of a stream, or the peer itself.
func (p *peer) whole() *peer {
	if p.of != nil {
		return p.of
	}
	return p
}

// spread draws execution times. The logarithm of a time is normal with standard deviation
// sigma.
type spread struct {
	sigma, shift float64
	// factor, if not nil, draws a time divided by its mean instead.
	factor func(*rand.Rand) float64
	// pace, if not nil, multiplies the times of executions that begin at a time.
	pace   func(at time.Duration) float64
	random *rand.Rand
}

func newSpread(sigma float64, seed, stream uint64) spread {
	return spread{sigma: sigma, shift: sigma * sigma / 2, random: rand.New(rand.NewPCG(seed, stream))}
}

func (s *spread) draw(mean, at time.Duration) time.Duration {
	if s.pace != nil {
		mean = time.Duration(float64(mean) * s.pace(at))
	}
	if s.factor != nil {
		return time.Duration(float64(mean) * s.factor(s.random))
	}
	if s.sigma <= 0 {
		return mean
	}
	return time.Duration(float64(mean) * math.Exp(s.sigma*s.random.NormFloat64()-s.shift))
}

// execute lets the peer run n requests that arrive at a time, in batches of at most its
// size. It returns the start of the first execution and the end of the last.
func (p *peer) execute(arrive time.Duration, n int, s *spread, w Window, record *Record) (start, end time.Duration) {
	all := p.whole()
	start = max(arrive, p.freeAt)
	end = start
	if p.Device != nil {
		end = max(start, p.Device.freeAt)
	}
	for rest := n; rest > 0; {
		size := min(rest, len(p.Truth))
		rest -= size
		end = p.budget.run(p.Quota, end, s.draw(p.Truth[size-1], end))
		all.expected += p.Truth[size-1]
		if w.Has(start) {
			record.Batch(size, 1)
		}
	}
	p.freeAt = end
	all.busy += end - start
	if p.Device != nil {
		p.Device.freeAt = end
	}
	all.inFlight++
	all.use.Busy += w.Overlap(start, end) / time.Duration(1+len(all.streams))
	return start, end
}
