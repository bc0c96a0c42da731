package batching

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Options say how a function's requests are batched.
type Options struct {
	// SLO is the function's latency objective.
	SLO time.Duration
	// MaxBatch bounds every batch, whatever an instance would take; 0 is no
	// bound.
	MaxBatch int
	// ShortExec is the execution time below which the way to the instance and
	// back takes about as long as the execution. Such an instance is given as
	// many batches at once as fill that time. 0 means [DefaultShortExec].
	ShortExec time.Duration
}

// DefaultShortExec is about twice the time of an exchange with a local
// instance.
const DefaultShortExec = 250 * time.Microsecond

// Shared is the default policy: the queue belongs to the function, and a free
// instance takes what waits at once (late binding). While instances are busy
// the queue grows, and so do the batches, by themselves: at a load of λ
// requests/s a batch of b is followed by one of λ·t(b). At light load every
// request is a batch of one and waits for nothing.
//
// A batch is as large as still meets its earliest deadline. Where the head's
// deadline allows only a batch so small that requests behind it would be lost,
// the head is passed over instead (see size). A batch is held back to fill,
// until d−t(b+1), only where the load can't be served by batches that start at
// once, and for a moment where the function is busy (see hold).
type Shared struct {
	options   Options
	queue     queue
	instances []*sharedInstance
	arrivals  arrivalRate
	// fastest is the least Exec[0] of all instances: no request can be
	// answered sooner.
	fastest time.Duration
	holding time.Time
	// lingering is the head that a busy function's batch waits with, and
	// lingerUntil how long.
	lingering   RequestID
	lingerUntil time.Time
	actions     []Action
	ids         []RequestID
}

// sharedInstance is an instance with what it is doing.
type sharedInstance struct {
	Instance
	// reach is how many requests it takes at once: a batch, or several
	// where they are short.
	reach int
	// inFlight counts its batches; freeAt is when the last should be done.
	inFlight int
	freeAt   time.Time
}

// NewShared returns the shared-queue policy.
func NewShared(o Options) *Shared {
	if o.ShortExec == 0 {
		o.ShortExec = DefaultShortExec
	}
	return &Shared{options: o}
}

// NewOneToOne returns the policy of stock OpenFaaS, one request per execution:
// a shared queue whose batches are of one.
func NewOneToOne(o Options) *Shared {
	o.MaxBatch = 1
	return NewShared(o)
}

// Add implements [Policy].
func (s *Shared) Add(now time.Time, r Request) {
	s.arrivals.add(now)
	s.queue.add(r)
}

// Cancel implements [Policy].
func (s *Shared) Cancel(_ time.Time, id RequestID) bool { return s.queue.remove(id) }

// Waiting implements [Policy].
func (s *Shared) Waiting() int { return s.queue.len() }

// Up implements [Policy].
func (s *Shared) Up(_ time.Time, in Instance) {
	if limit := s.options.MaxBatch; limit > 0 && in.Config.Batch > limit {
		in.Config.Batch = limit
	}
	i := s.index(in.ID)
	if i < 0 {
		i = len(s.instances)
		s.instances = append(s.instances, &sharedInstance{})
	}
	s.instances[i].Instance = in
	s.instances[i].reach = s.reach(in)
	s.measureFastest()
}

// mostShort bounds how many short batches go to an instance at once, mostReach
// how many requests they may have together.
const (
	mostShort = 16
	mostReach = 1024
)

// reach is a batch, or as many as are executed within ShortExec. For example
// with batches of one that take 20 µs, a reach of 12 makes one exchange of 12.
func (s *Shared) reach(in Instance) int {
	b := in.Config.Batch
	t := max(in.Exec[b-1], time.Microsecond)
	return b * max(1, min(mostShort, int(s.options.ShortExec/t), mostReach/b))
}

// Down implements [Policy].
func (s *Shared) Down(_ time.Time, id cluster.InstanceID) {
	if i := s.index(id); i >= 0 {
		s.instances = slices.Delete(s.instances, i, i+1)
	}
	s.measureFastest()
}

// Done implements [Policy].
func (s *Shared) Done(now time.Time, id cluster.InstanceID) {
	i := s.index(id)
	if i < 0 {
		return
	}
	in := s.instances[i]
	in.inFlight = max(0, in.inFlight-1)
	if in.inFlight > 0 {
		// The batch behind begins now; its size is not kept, so what was
		// foreseen for it is shifted only if it is past.
		if in.freeAt.Before(now) {
			in.freeAt = now
		}
	}
}

// Actions implements [Policy].
func (s *Shared) Actions(now time.Time) []Action {
	s.actions, s.ids = s.actions[:0], s.ids[:0]
	s.holding = time.Time{}
	s.expire(now)
	for s.queue.len() > 0 {
		in := s.next(now)
		if in == nil {
			break
		}
		from, size := s.size(now, in)
		if in.inFlight > 0 && size < in.reach {
			break // Not full after all: it may still grow.
		}
		if until, hold := s.hold(now, in, size); hold {
			s.holding = until
			break
		}
		s.dispatch(now, in, from, size)
	}
	return s.actions
}

// Next implements [Policy].
func (s *Shared) Next() (time.Time, bool) {
	if s.queue.len() == 0 {
		return time.Time{}, false
	}
	// One past the last instant at which the head could still be served.
	at := s.queue.at(0).Deadline.Add(-s.fastest + 1)
	if !s.holding.IsZero() && s.holding.Before(at) {
		at = s.holding
	}
	return at, true
}

// expire rejects what can no longer be met even by a batch of one that starts
// now on the fastest instance.
func (s *Shared) expire(now time.Time) {
	late := s.queue.before(now.Add(s.fastest))
	from := len(s.ids)
	s.ids = s.queue.take(0, late, s.ids)
	for _, id := range s.ids[from:] {
		s.actions = append(s.actions, Action{Reject: id, Reason: Late})
	}
}

// next returns the instance that should take the next batch: of those that can
// take one now, the one that begins it first, and of these the one that serves
// what waits at the highest rate. Nil if none can.
func (s *Shared) next(now time.Time) *sharedInstance {
	var best *sharedInstance
	var bestRate float64
	for _, in := range s.instances {
		if !s.takes(now, in) {
			continue
		}
		size := min(s.queue.len(), in.reach)
		rate := float64(size) / max(in.time(size).Seconds(), 1e-9)
		if best == nil || in.inFlight < best.inFlight || in.inFlight == best.inFlight && rate > bestRate {
			best, bestRate = in, rate
		}
	}
	return best
}

// takes reports whether in can be given a batch now: it is free, or it executes
// one batch and nothing is lost by fixing the next one now, because that is full
// already; and it can still meet some deadline.
func (s *Shared) takes(now time.Time, in *sharedInstance) bool {
	switch in.inFlight {
	case 0:
	case 1:
		if s.queue.len() < in.reach {
			return false
		}
	default:
		return false
	}
	last := s.queue.at(s.queue.len() - 1).Deadline
	return !last.Before(in.start(now).Add(in.Exec[0]))
}

func (s *Shared) dispatch(now time.Time, in *sharedInstance, from, size int) {
	start := in.start(now)
	first := len(s.ids)
	s.ids = s.queue.take(from, size, s.ids)
	in.inFlight++
	in.freeAt = start.Add(in.time(size))
	s.actions = append(s.actions, Action{Instance: in.ID, Dispatch: s.ids[first:len(s.ids):len(s.ids)]})
}

// time is how long n requests take, in batches of b one after another.
func (in *sharedInstance) time(n int) time.Duration {
	b := in.Config.Batch
	t := time.Duration(n/b) * in.Exec[b-1]
	if rest := n % b; rest > 0 {
		t += in.Exec[rest-1]
	}
	return t
}

// start is when a batch that is given to in now begins to execute.
func (in *sharedInstance) start(now time.Time) time.Time {
	if in.inFlight > 0 && in.freeAt.After(now) {
		return in.freeAt
	}
	return now
}

func (s *Shared) index(id cluster.InstanceID) int {
	return slices.IndexFunc(s.instances, func(in *sharedInstance) bool { return in.ID == id })
}

func (s *Shared) measureFastest() {
	s.fastest = 0
	for i, in := range s.instances {
		if i == 0 || in.Exec[0] < s.fastest {
			s.fastest = in.Exec[0]
		}
	}
}
