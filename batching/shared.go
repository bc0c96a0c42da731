package batching

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Options configure a function's policy.
type Options struct {
	// SLO is the function's latency objective.
	SLO time.Duration
	// MaxBatch bounds every batch, whatever the instance's Config.Batch; 0 means no
	// bound.
	MaxBatch int
	// ShortExec is the execution time below which the way to the instance and
	// back takes about as long as the execution. Such an instance gets as many
	// batches at once as fill that time. 0 means [DefaultShortExec].
	ShortExec time.Duration
}

// bounded is an instance that takes no more than MaxBatch.
func (o *Options) bounded(in Instance) Instance {
	if o.MaxBatch > 0 {
		in.Config.Batch = min(in.Config.Batch, o.MaxBatch)
	}
	return in
}

// waiter is a request that arrives now, for a policy that waits for full batches.
func (o *Options) waiter(c *clock, now time.Time, r Request) waiter {
	due, within := c.since(r.Deadline), r.Within
	if within <= 0 {
		within = o.SLO
	}
	return waiter{id: r.ID, due: due, class: r.Class, hold: min(due, c.since(now)+within)}
}

// DefaultShortExec is about twice the time of an exchange with a local
// instance.
const DefaultShortExec = 250 * time.Microsecond

// Shared is the default policy: the function has one queue, and a free instance
// takes the waiting requests at once (late binding). While instances are busy the
// queue grows, and the batches grow with it: at a load of λ requests/s a batch of b
// is followed by one of λ·t(b). At light load every request is a batch of one and
// does not wait. If the instances serve different classes of requests, there is a queue
// for each lane. A free instance then takes from all lanes that it serves. If the rows of
// requests differ in size, a batch has rows of one size, and closes by the time of that
// size (see lineUpSize).
//
// A batch is as large as its earliest deadline allows. The policy passes over the
// head if its deadline allows only a batch so small that requests behind it would
// be lost (see size). It holds a batch back to fill if batches that start at once
// would not serve the load, or would leave no instance free in time for the next
// requests (see hold).
type Shared struct {
	options Options
	// within is the time from a request's arrival to its deadline.
	within time.Duration
	clock  clock
	// queues has the requests by lane, queued the lanes that have some. waiting is
	// their number.
	queues  [MaxClasses]queue
	queued  uint16
	waiting int
	// sized: a request waits whose size is known.
	sized bool
	line  line
	// soon are the requests from which a batch of one size is chosen.
	soon []candidate
	// spare is how many requests others may make late that are late in any case.
	spare  spare
	fleet  fleet
	recent recent
	// again is when [Shared.look] would list requests that it did not, 0 if it does not know.
	again time.Duration
	// holding is when the policy must look at a held batch again, 0 if none is
	// held.
	holding time.Duration
	// held has the kinds whose batches are held back now.
	held []*kind
	// deferred: a batch waits as long as one more request could join in time (see [NewDeferred]).
	deferred bool
	actions  []Action
	ids      []RequestID
}

// NewShared returns the shared-queue policy.
func NewShared(o Options) *Shared {
	if o.ShortExec == 0 {
		o.ShortExec = DefaultShortExec
	}
	return &Shared{options: o, within: o.SLO - Travel(o.SLO), spare: spare{left: firstSpare}}
}

// newOneToOne returns the policy of stock OpenFaaS, one request per execution: a
// shared queue whose batches have one request.
func newOneToOne(o Options) *Shared {
	o.MaxBatch = 1
	return NewShared(o)
}

// Add implements [Policy].
func (s *Shared) Add(now time.Time, r Request) {
	within := s.within
	if r.Within > 0 {
		within = min(within, r.Within)
	}
	if s.recent.add(s.clock.since(now), r.Class, within) {
		s.fleet.measure(s.within, &s.recent)
	}
	due := s.clock.since(r.Deadline)
	hold := min(due, s.clock.since(now)+within)
	w := waiter{id: r.ID, due: due, class: r.Class, hold: hold, work: work{r.Elements, max(1, r.Rows)}}
	if s.fleet.sized && s.fleet.inTimeSomewhere(&w) {
		s.spare.add(s.clock.since(now))
	}
	s.enqueue(w)
	s.waiting++
	s.sized = s.sized || r.Elements > 0 || r.Rows > 1
}

// Cancel implements [Policy].
func (s *Shared) Cancel(_ time.Time, id RequestID) bool {
	for rest := s.queued; rest != 0; rest &= rest - 1 {
		if lane := lowest(rest); s.queues[lane].remove(id) {
			s.left(lane, 1)
			return true
		}
	}
	return false
}

// Waiting implements [Policy].
func (s *Shared) Waiting() int { return s.waiting }

// Up implements [Policy].
func (s *Shared) Up(_ time.Time, in Instance) {
	in = s.options.bounded(in)
	if len(in.Exec) == 0 || in.Exec[0] < separateExecs*s.options.ShortExec {
		in.Sizes, in.Longest = nil, 0
	}
	if s.fleet.put(in, s.reach(in)) {
		s.measure()
	}
}

// measure calculates what depends on all instances.
func (s *Shared) measure() {
	if s.fleet.measure(s.within, &s.recent) {
		s.sort()
	}
}

// maxShort bounds how many short batches go to an instance at once. maxReach bounds
// the number of their requests.
const (
	maxShort = 16
	maxReach = 1024
)

// reach is how many requests the instance takes at once: one batch, or as many
// batches as execute within ShortExec. For example batches of one that take 20 µs
// give a reach of 12, so 12 requests share one exchange. A stream takes one batch: the others
// execute meanwhile.
func (s *Shared) reach(in Instance) int {
	b := in.Config.Batch
	if in.Config.Streams() > 1 {
		return b
	}
	t := max(in.Exec[b-1], time.Microsecond)
	return b * max(1, min(maxShort, int(s.options.ShortExec/t), maxReach/b))
}

// Down implements [Policy].
func (s *Shared) Down(_ time.Time, id cluster.InstanceID) {
	if s.fleet.remove(id) {
		s.measure()
	}
}

// Done implements [Policy].
func (s *Shared) Done(now time.Time, id cluster.InstanceID) { s.fleet.done(id, s.clock.since(now)) }

// Actions implements [Policy].
func (s *Shared) Actions(at time.Time) []Action {
	s.actions, s.ids = s.actions[:0], s.ids[:0]
	s.holding = 0
	if s.waiting == 0 {
		return nil
	}
	now := s.clock.since(at)
	s.expire(now)
	for s.waiting > 0 && (s.toFree(now) || s.toBusy(now)) {
	}
	return s.actions
}

// Next implements [Policy].
func (s *Shared) Next() (time.Time, bool) {
	if s.waiting == 0 {
		return time.Time{}, false
	}
	// One past the last instant at which a lane's head could still be served.
	at := farthest
	for rest := s.queued; rest != 0; rest &= rest - 1 {
		at = min(at, s.latestStart(lowest(rest))+1)
	}
	if s.holding != 0 {
		at = min(at, s.holding)
	}
	return s.clock.time(at), true
}

// expire rejects the requests that a batch of one, started now on the fastest instance that serves them, would
// answer too late even if it is quick and the way back is, too. Earlier it rejects none: a request that waits costs
// nothing, and the instance may be free before its batch should end.
func (s *Shared) expire(now time.Duration) {
	from := len(s.ids)
	for rest := s.queued; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		q, soonest := &s.queues[lane], now+s.fleet.soonest(s.fleet.served[lane].fastest)
		if s.sized && s.fleet.sized {
			s.expireSized(now, lane)
		} else if q.at(0).due < soonest {
			late := q.before(soonest)
			s.ids = q.take(0, late, s.ids)
			s.left(lane, late)
		}
	}
	for _, id := range s.ids[from:] {
		s.actions = append(s.actions, Action{Reject: id, Reason: Late})
	}
}

// toFree gives a batch to a free instance and reports whether it did. It takes the best
// of the kinds whose batch is not held back.
func (s *Shared) toFree(now time.Duration) bool {
	if s.fleet.free == 0 {
		return false
	}
	s.held = s.held[:0]
	for k := s.best(now); k != nil; k = s.best(now) {
		s.held = append(s.held, k) // Unless it gets a batch.
		s.again = 0
		of := s.lineUp(k, now)
		if s.again != 0 && (s.holding == 0 || s.again < s.holding) {
			s.holding = s.again
		}
		if of == nil {
			continue
		}
		from, size, passed := s.size(now, now, of)
		until, hold := s.hold(now, of, from, size)
		if passed || !hold {
			s.dispatch(now, k.free.First(), from, size, of)
			s.holding, s.held = 0, s.held[:0]
			return true
		}
		if s.holding == 0 || until < s.holding {
			s.holding = until
		}
	}
	return false
}

// best returns the kind with a free instance that serves the fewest classes, so that the
// others stay free for requests that only they may answer. Of several such kinds it takes
// the one that serves the waiting requests at the highest rate. It skips kinds that are
// held back and kinds that can meet no deadline.
func (s *Shared) best(now time.Duration) *kind {
	var best *kind
	var highest float64
	for _, k := range s.fleet.kinds {
		if k.free.Len() == 0 || k.lanes&s.queued == 0 || k.held(s) {
			continue
		}
		waiting, last := s.count(k)
		if now+s.fleet.soonest(s.soonest(k)) > last {
			continue
		}
		if len(s.fleet.kinds) == 1 {
			return k
		}
		n := min(waiting, k.reach)
		rate := float64(n) / max(k.time(n).Seconds(), 1e-9)
		if best == nil || k.width() < best.width() || k.width() == best.width() && rate > highest {
			best, highest = k, rate
		}
	}
	return best
}

// toBusy sends the next batch to the instance that becomes free first of those that
// serve the waiting requests, so the batch is there when the one before is done. It
// reports whether it did. That loses nothing if the batch is full and no other instance
// becomes free earlier. Execution times vary, so this is fairly sure only shortly before
// the end: within 8·ShortExec, a few exchanges, or within the last sixteenth of the
// execution. An instance that is overdue by more than that is passed over if others serve the
// requests: it may be stuck.
func (s *Shared) toBusy(now time.Duration) bool {
	if s.waiting < s.fleet.least {
		return false
	}
	left := s.queued // The lanes whose next request no instance before takes.
	if s.fleet.free > 0 {
		left &^= s.fleet.freeLanes()
	}
	for i, b := range s.fleet.busy.All() {
		if left == 0 || i == maxBusy {
			break
		}
		m := &s.fleet.members[b.Slot]
		lanes := m.kind.lanes & s.queued
		if now-b.Until > m.margin(s.options.ShortExec) && s.fleet.rivalling(lanes) > 1 {
			continue
		}
		if lanes != 0 && lanes&^left == 0 && s.ahead(now, b.Slot) {
			return true
		}
		left &^= lanes
	}
	return false
}

// maxBusy bounds how many busy instances toBusy looks at.
const maxBusy = 64

// ahead sends a full batch to a busy instance if it has only one and is done soon. A stream gets
// none ahead: the instance executes the other streams' batches while the next one is on its way.
func (s *Shared) ahead(now time.Duration, slot int) bool {
	m := &s.fleet.members[slot]
	waiting, last := s.count(m.kind)
	if m.inFlight > 1 || m.kind.stream || waiting < m.kind.brief {
		return false
	}
	start := max(now, m.freeAt)
	if s.fleet.rivalling(m.kind.lanes&s.queued) > 1 && start-now > m.margin(s.options.ShortExec) {
		return false
	}
	if start+s.soonest(m.kind) > last {
		return false
	}
	of := s.lineUp(m.kind, start)
	if of == nil {
		return false
	}
	from, size, _ := s.size(now, start, of)
	if size < s.limit(now, of) {
		return false // Not full after all: it may still grow.
	}
	if size == 1 && from > triedFrom(s, max(now, m.began+s.fleet.pace.Of(m.current)), of) {
		return false // Those before it are late only if the present batch takes its longest time.
	}
	s.dispatch(now, slot, from, size, of)
	return true
}

// margin is how far from its predicted end a busy instance's last batch is fairly sure to end.
func (m *member) margin(short time.Duration) time.Duration { return max(8*short, m.behind/16) }

// dispatch gives the line's requests from the from-th on to the instance in a slot, which executes them
// as one of kind of does.
func (s *Shared) dispatch(now time.Duration, slot, from, size int, of *kind) {
	first := len(s.ids)
	s.take(from, size)
	if of.real > 0 {
		k := s.fleet.members[slot].kind
		s.spare.left = max(spoiled, s.spare.left-spoils(excess(s, now, k), k, of))
	}
	s.fleet.engage(slot, now, size, of)
	s.actions = append(s.actions, Action{Instance: s.fleet.members[slot].id, Dispatch: s.ids[first:len(s.ids):len(s.ids)]})
}
