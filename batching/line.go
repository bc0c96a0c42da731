package batching

import "time"

// line is what an instance of some kind may take, earliest deadline first: a lane's
// queue, or the beginning of several lanes' together.
type line struct {
	*queue
	// more is how many requests follow behind the queue's.
	more int
	// lanes are those of the requests. If there are several, skip[i] is the place in
	// lane i of its first request in the line.
	lanes uint16
	skip  [MaxClasses]int
	// merged holds the requests of several lanes, or those of one size: then apart is true.
	merged queue
	apart  bool
	// limit bounds the batch.
	limit int
}

// total is the number of requests in the line.
func (l *line) total() int { return l.len() + l.more }

// lineUp makes the line for an instance of kind k that becomes free at start; some
// request that it serves must wait. It returns the kind with the times of the line's requests, nil
// if the instance can serve none in time. If k serves several lanes with requests, the line has
// only what size looks at: it begins with the first request of each lane that k can serve in
// time, and ends behind those that fit no largest batch, another largest batch and lookAhead.
func (s *Shared) lineUp(k *kind, start time.Duration) *kind {
	l := &s.line
	l.lanes, l.more, l.apart, l.limit = k.lanes&s.queued, 0, false, maxReach
	if s.sized && k.varies() {
		return s.lineUpSize(k, start)
	}
	if l.lanes&(l.lanes-1) == 0 {
		l.queue = &s.queues[lowest(l.lanes)]
		return k
	}
	l.queue = &l.merged
	for rest := l.lanes; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		l.skip[lane] = s.queues[lane].before(start + s.fleet.soonest(k.exec[0]))
		l.more += s.queues[lane].len() - l.skip[lane]
	}
	items, next, ahead := l.merged.items[:0], l.skip, k.reach+lookAhead
	for full := start + k.time(k.reach); l.more > 0 && ahead > 0; l.more-- {
		w := s.earliest(l.lanes, &next)
		items = append(items, w)
		if w.due >= full {
			ahead--
		}
	}
	l.merged = queue{items: items, gap: len(items), end: len(items)}
	return k
}

// earliest returns the request with the earliest deadline of those at the places next of
// the lanes, and moves on behind it. Of equal deadlines the lower ID is first.
func (s *Shared) earliest(lanes uint16, next *[MaxClasses]int) waiter {
	var first *waiter
	var from int
	for rest := lanes; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		q := &s.queues[lane]
		if next[lane] == q.len() {
			continue
		}
		if w := q.at(next[lane]); first == nil || w.due < first.due || w.due == first.due && w.id < first.id {
			first, from = w, lane
		}
	}
	next[from]++
	return *first
}

// take removes size requests of the line, starting at the from-th, and appends their IDs
// to ids.
func (s *Shared) take(from, size int) {
	l := &s.line
	if l.queue != &l.merged {
		s.ids = l.queue.take(from, size, s.ids)
		s.left(lowest(l.lanes), size)
		return
	}
	var taken [MaxClasses]int
	for i := range from + size {
		w := l.at(i)
		lane := s.fleet.lanes.of[w.class]
		if l.apart {
			if i >= from && s.queues[lane].remove(w.id) {
				s.ids = append(s.ids, w.id)
				s.left(int(lane), 1)
			}
			continue
		}
		if i < from {
			l.skip[lane]++
			continue
		}
		taken[lane]++
		s.ids = append(s.ids, w.id)
	}
	for rest := l.lanes; rest != 0 && !l.apart; rest &= rest - 1 {
		lane := lowest(rest)
		s.queues[lane].drop(l.skip[lane], taken[lane])
		s.left(lane, taken[lane])
	}
}

// left notes that n requests left a lane's queue.
func (s *Shared) left(lane, n int) {
	s.waiting -= n
	if s.queues[lane].len() == 0 {
		s.queued &^= 1 << lane
	}
	s.sized = s.sized && s.waiting > 0
}

// sort puts all requests into the queues of their lanes after the lanes changed.
func (s *Shared) sort() {
	var all []waiter
	for rest := s.queued; rest != 0; rest &= rest - 1 {
		all = append(all, s.queues[lowest(rest)].drain()...)
	}
	s.queued = 0
	for _, w := range all {
		s.enqueue(w)
	}
}

func (s *Shared) enqueue(w waiter) {
	lane := s.fleet.lanes.of[w.class] % MaxClasses
	s.queues[lane].add(w)
	s.queued |= 1 << lane
}

// count returns how many requests wait that k serves, and the last deadline of these.
func (s *Shared) count(k *kind) (n int, last time.Duration) {
	if s.queued == 1 {
		q := &s.queues[0]
		n = q.len()
		return n, q.at(n - 1).due
	}
	last = -farthest
	for rest := k.lanes & s.queued; rest != 0; rest &= rest - 1 {
		q := &s.queues[lowest(rest)]
		n += q.len()
		last = max(last, q.at(q.len()-1).due)
	}
	return n, last
}

// load is the part of the load that decides how busy a kind of instance is: that of
// a lane, and of the classes that no instances but that lane's serve.
type load struct {
	lane           int
	rate, capacity float64
}

// load returns the load of the lane of k whose instances have the most to do. For example
// a few accurate instances serve all classes, and many others one class only. The
// accurate ones are busy if their own class is, even if the sum of all loads is small
// for the sum of all instances.
func (s *Shared) load(now time.Duration, k *kind) (l load) {
	if s.recent.classes == 1 && s.queued == 1 {
		return load{0, s.recent.rates[0].at(now), s.fleet.served[0].capacity}
	}
	lanes := k.lanes & (s.fleet.lanes.having(s.recent.classes) | s.queued)
	for rest := lanes; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		by := &s.fleet.served[lane]
		rate := s.recent.rate(now, by.rivals)
		if l.capacity == 0 || rate*l.capacity > l.rate*by.capacity {
			l = load{lane, rate, by.capacity}
		}
	}
	return l
}

// limit is how many requests an instance of kind k takes at once. If rows gain nothing
// together, the first ones of a batch would only wait for the last. If recent requests have
// shorter objectives than the others, a long batch of the others would make them late.
// As long as short batches serve the load, no batch is longer than such a request can wait.
func (s *Shared) limit(now time.Duration, k *kind) int {
	if k.brief == k.reach {
		return k.reach
	}
	return s.brief(now, k)
}

func (s *Shared) brief(now time.Duration, k *kind) int {
	if l := s.load(now, k); k.single || l.rate <= l.capacity {
		return k.brief
	}
	return k.reach
}
