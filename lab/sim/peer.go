package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/batching"
)

// Peer is a ready instance: what its batching policy is told of it, and what is
// true of it.
type Peer struct {
	// Truth[b-1] is the mean time of a batch of b.
	Truth []time.Duration
	// Quota bounds when it executes.
	Quota Quota
	batching.Instance
}

// Use is what an instance has done in the measured window since it is up.
type Use struct {
	// Busy is how long it executed.
	Busy time.Duration
	// Served counts requests.
	Served uint64
}

// Ready is an instance that is up, for who wants to know how it does.
type Ready interface {
	// IdleSince is since when it has had nothing to do; false while it has.
	IdleSince() (since time.Duration, idle bool)
	// Used is what it has done since it is up.
	Used() Use
}

// IdleSince implements [Ready].
func (p *peer) IdleSince() (since time.Duration, idle bool) { return p.idleSince, p.inFlight == 0 }

// Used implements [Ready].
func (p *peer) Used() Use { return p.use }

// peer is an instance with what it is doing. What every batch needs lies together,
// since of thousands of instances few are in a processor's cache.
type peer struct {
	slot int32
	// up is false once it takes no new batch, and while it is parked.
	up, parked bool
	inFlight   int
	use        Use
	// freeAt is when it has executed all that it was given, idleSince when it
	// answered last.
	freeAt, idleSince time.Duration
	budget            budget
	Peer
}

// spread draws how much longer or shorter than the mean an execution takes: its
// logarithm is normal with standard deviation sigma, its mean 1.
type spread struct {
	sigma, shift float64
	// factor, if not nil, is drawn from instead.
	factor func(*rand.Rand) float64
	random *rand.Rand
}

func newSpread(sigma float64, seed, stream uint64) spread {
	return spread{sigma: sigma, shift: sigma * sigma / 2, random: rand.New(rand.NewPCG(seed, stream))}
}

func (s *spread) draw(mean time.Duration) time.Duration {
	if s.factor != nil {
		return time.Duration(float64(mean) * s.factor(s.random))
	}
	if s.sigma <= 0 {
		return mean
	}
	return time.Duration(float64(mean) * math.Exp(s.sigma*s.random.NormFloat64()-s.shift))
}

// execute has the peer run n requests, in batches of at most its size, and
// returns when the last is done and how long the executions took together.
func (p *peer) execute(arrive time.Duration, n int, s *spread, w Window, record *Record) (start, end time.Duration) {
	start = max(arrive, p.freeAt)
	end = start
	for rest := n; rest > 0; {
		size := min(rest, len(p.Truth))
		rest -= size
		end = p.budget.run(p.Quota, end, s.draw(p.Truth[size-1]))
		if w.Has(start) {
			record.Batch(size, 1)
		}
	}
	p.freeAt = end
	p.inFlight++
	p.use.Busy += w.Overlap(start, end)
	return start, end
}
