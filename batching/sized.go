package batching

import (
	"slices"
	"time"
)

// The rows of a batch have one size, since engines run only such rows together: a text of 256 tokens in a
// batch of short ones would run on its own, and all would wait for it. This file chooses the size.

const (
	// separateExecs: requests share exchanges whatever their sizes if one takes less than so many
	// ShortExec. The exchange of a batch of their own would take longer than the time that it saves.
	separateExecs = 2
	// maxSized bounds the sizes whose times a kind keeps.
	maxSized = 1024
	// maxFirst bounds how many sizes are compared if a batch would make others late.
	maxFirst = 8
	// maxWalk bounds how many requests are looked at for that.
	maxWalk = 64
)

// work is the size of a request: the elements of a row, 0 if these are not known, and the number of rows.
type work struct {
	elements int64
	rows     int
}

// varies reports whether the time of a request depends on its size.
func (k *kind) varies() bool { return k.sizes != nil || k.padTo > 0 }

// of returns the kind with the times of requests of a size, or of the bucket of sizes that it belongs to;
// k itself if the size is not known. Its rate is that of k, so that both are the same part of all instances.
//
// A request of several rows counts as that many: t(n) of such requests is t(n·rows). It waits for no others
// unless they have as many.
//
// A request that takes longer than its objective even on a free instance is admitted as one of the planned
// size, and is late: another try would not be better. It runs alone, if nobody else is late for that.
func (k *kind) of(of work) *kind {
	if k.sizes == nil {
		of.elements = 0
	}
	if of.elements <= 0 && of.rows <= 1 || !k.varies() {
		return k
	}
	of.elements, of.rows = k.bucket(max(0, of.elements)), rounded(of.rows)
	if s := k.sized[of]; s != nil {
		return s
	}
	if len(k.sized) >= maxSized || k.sized == nil {
		k.sized = map[work]*kind{}
	}
	s := *k
	s.planned, s.sized, s.buckets, s.free = k, nil, nil, Set{}
	s.exec = make([]time.Duration, max(1, len(k.exec)/of.rows))
	last := time.Duration(0)
	for i := range s.exec {
		last = max(last, k.sizedTime((i+1)*of.rows, of.elements))
		s.exec[i] = last
	}
	if of.rows > 1 {
		s.batch, s.reach = len(s.exec), len(s.exec)
	}
	if s.exec[0] > k.within-k.within/20 { // [latency.Rules] leaves as much for a start a moment after the arrival.
		s.real, s.exec, s.batch, s.reach = s.exec[0], []time.Duration{min(k.exec[0], s.exec[0])}, 1, 1
	}
	s.fill()
	k.sized[of] = &s
	return &s
}

// sizedTime is the time of so many rows of a size, 0 for the planned one, in as many batches as they need.
func (k *kind) sizedTime(rows int, elements int64) time.Duration {
	if elements <= 0 {
		return k.time(rows)
	}
	part := func(n int) time.Duration {
		return time.Duration(float64(k.exec[n-1]) * k.sizes.Factor(n, elements))
	}
	t := time.Duration(0)
	if full := rows / k.batch; full > 0 {
		t = time.Duration(full) * part(k.batch)
	}
	if rest := rows % k.batch; rest > 0 {
		t += part(rest)
	}
	return t
}

const (
	// minStep is the least ratio of two neighbouring buckets, maxStep the largest of their times for one row.
	minStep, maxStep = 17.0 / 16, 1.25
	// exactRows is the number of rows up to which requests of different numbers are told apart. Larger
	// numbers count as the next of a geometric series.
	exactRows = 4
)

// rounded is a number of rows, or a somewhat larger one with which it counts as one.
func rounded(rows int) int {
	of := max(1, min(rows, exactRows))
	for of < rows {
		of += of / 4
	}
	return of
}

// bucket returns the largest size that counts as one with a size of rows, if instances pad rows. They do, if
// the smaller of two sizes takes no longer beside the larger one, padded to it, than alone.
//
// For example t(1) = 5 ms + 0.1 ms for each token, and each further row takes 0.1 ms for each token. A text of 16 tokens
// takes 6.6 ms alone, and 2.4 ms beside one of 24: they count as one. One of 240 tokens takes 29 ms alone and
// 30 beside one of 300.
func (k *kind) bucket(elements int64) int64 {
	if k.padTo == 0 || elements == 0 {
		return elements
	}
	for last := int64(0); ; {
		if n := len(k.buckets); n > 0 {
			last = k.buckets[n-1]
		}
		if last >= elements {
			at, _ := slices.BinarySearch(k.buckets, elements)
			return k.buckets[at]
		}
		if elements > max(k.padTo, last)*4 { // Nothing is that long; a wrong estimate must not make many buckets.
			return elements
		}
		k.buckets = append(k.buckets, k.nextBucket(last+1))
	}
}

// nextBucket is the largest size that counts as one with a smaller one.
func (k *kind) nextBucket(smallest int64) int64 {
	least := int64(minStep * float64(smallest))
	if k.batch == 1 {
		return least
	}
	alone := k.sizedTime(1, smallest)
	joins := func(elements int64) bool {
		one := k.sizedTime(1, elements)
		return k.sizedTime(2, elements)-one <= alone+exchange && float64(one) <= maxStep*float64(alone)
	}
	below, above := least, 64*smallest+64
	for above-below > 1 {
		if middle := (below + above) / 2; joins(middle) {
			below = middle
		} else {
			above = middle
		}
	}
	return below
}

// base is the kind with the planned times.
func (k *kind) base() *kind {
	if k.planned != nil {
		return k.planned
	}
	return k
}

// soonest is the shortest time of an instance of kind k for one request that may wait.
func (s *Shared) soonest(k *kind) time.Duration {
	if !s.sized {
		return k.exec[0]
	}
	return min(k.exec[0], k.of(work{1, 1}).exec[0])
}

// fastest is the time that any instance takes for a request of a lane if it is quick, by the request's size.
func (f *fleet) fastest(lane int, w *waiter) time.Duration {
	inTime, late := farthest, farthest
	for _, k := range f.kinds {
		if !has(k.lanes, lane) {
			continue
		}
		if of := k.of(w.work); of.real == 0 {
			inTime = min(inTime, f.pace.Quick(of.exec[0]))
		} else {
			late = min(late, f.pace.Quick(of.exec[0]))
		}
	}
	switch {
	case inTime < farthest:
		return inTime
	case late < farthest:
		return late
	}
	return 0 // No instance serves it.
}

// latestStart is the last instant at which every request of a lane's queue could still be served; of
// requests with sizes it knows the first ones.
func (s *Shared) latestStart(lane int) time.Duration {
	q := &s.queues[lane]
	if !s.sized || !s.fleet.sized {
		return q.at(0).due + s.fleet.slack - s.fleet.pace.Quick(s.fleet.served[lane].fastest)
	}
	at := farthest
	for i := range min(q.len(), lookAhead) {
		w := q.at(i)
		at = min(at, w.due+s.fleet.slack-s.fleet.fastest(lane, w))
	}
	return at
}

// expireSized removes the requests that are late by the times of their own sizes, as far as it looks.
func (s *Shared) expireSized(now time.Duration, lane int) {
	q, late := &s.queues[lane], 0
	for i := 0; i < min(q.len(), lookAhead); {
		w := q.at(i)
		if now+s.fleet.fastest(lane, w) <= w.due+s.fleet.slack {
			i++
			continue
		}
		s.ids = append(s.ids, w.id)
		q.drop(i, 1)
		late++
	}
	if late > 0 {
		s.left(lane, late)
	}
}

// lineUpSize is lineUp for requests with sizes: the line has the waiting requests of one size. This is the
// size of the first request that the instance can serve in time. If others would be late behind it, it is
// the size behind which the fewest are. The line's limit is the largest batch behind which no more are late
// than behind a shorter one.
//
// For example t(1) = 60 ms for a long text and t(1) = 5, t(2) = 7, t(3) = 9 ms for short ones. Now a long
// one is due in 66 ms and three short ones in 70. The long one goes first: it is done at 60, and the short
// ones, in one batch, at 69. If the short ones were due in 66, two would be late: they go first, and the
// long one is late instead.
func (s *Shared) lineUpSize(k *kind, start time.Duration) *kind {
	l := &s.line
	l.queue, l.apart = &l.merged, true
	s.look(k, start)
	if len(s.soon) == 0 {
		return nil
	}
	of, limit := s.chooseSize(k, start)
	items := l.merged.items[:0]
	for i := range s.soon {
		if a := &s.soon[i]; a.of == of {
			items = append(items, a.waiter)
		}
	}
	l.merged = queue{items: items, gap: len(items), end: len(items)}
	waiting, _ := s.count(k)
	l.more, l.limit = waiting-len(items), limit
	return of
}

// candidate is a request that an instance can serve in time, with the kind of its size. in says that a
// simulated batch has it.
type candidate struct {
	waiter
	of *kind
	in bool
}

// look lists in s.soon the first requests that an instance of kind k, free at start, can serve in time, or should although
// they are late in any case. It sets s.again to the time at which it would list more.
func (s *Shared) look(k *kind, start time.Duration) {
	s.soon, s.again = s.soon[:0], 0
	others := spoiling{start: start, k: k}
	var next [MaxClasses]int
	for waiting, _ := s.count(k); waiting > 0 && len(s.soon) < lookAhead; waiting-- {
		w := s.earliest(s.line.lanes, &next)
		if of := others.suits(s, k.of(w.work), &w); of != nil {
			s.soon = append(s.soon, candidate{waiter: w, of: of})
		}
	}
}

// inTimeSomewhere reports whether some instance is fast enough for a request's objective.
func (f *fleet) inTimeSomewhere(w *waiter) bool {
	lane := int(f.lanes.of[w.class])
	return slices.ContainsFunc(f.kinds, func(k *kind) bool { return has(k.lanes, lane) && k.of(w.work).real == 0 })
}

// chooseSize returns the kind of the size that is served first, and the largest batch of it.
func (s *Shared) chooseSize(k *kind, start time.Duration) (best *kind, limit int) {
	best = s.soon[0].of
	if !slices.ContainsFunc(s.soon, func(c candidate) bool { return c.of != best }) {
		return best, best.reach
	}
	limit, least := s.harmless(k, start, best)
	tried := make([]*kind, 1, maxFirst)
	tried[0] = best
	for i := 1; i < min(len(s.soon), maxWalk) && least > 0 && len(tried) < maxFirst; i++ {
		of := s.soon[i].of
		if slices.Contains(tried, of) {
			continue
		}
		tried = append(tried, of)
		if n, late := s.harmless(k, start, of); late < least {
			best, limit, least = of, n, late
		}
	}
	return best, limit
}

// harmless returns the largest batch of a size behind which no more requests are late than behind the next
// smaller ones, and the number of those: of its largest batch, a half, a quarter, … and 1.
func (s *Shared) harmless(k *kind, start time.Duration, of *kind) (limit, least int) {
	least = len(s.soon) + 1
	for n := of.batch; n > 0 && least > 0; n /= 2 {
		if late := s.lateBehind(k, start, of, n); late < least {
			limit, least = n, late
		}
	}
	return limit, least
}

// lateBehind counts the requests that are late if an instance of kind k executes, at start, at most limit
// requests of a size that their deadlines allow. The others follow, earliest deadline first, each with as
// many of its size as its deadline allows. As in lost, all instances serve them together.
func (s *Shared) lateBehind(k *kind, start time.Duration, of *kind, limit int) (late int) {
	load := s.load(start, k)
	part := min(1, k.rate/max(load.capacity, 1e-9))
	walk := s.soon[:min(len(s.soon), maxWalk)]
	for i := range walk {
		walk[i].in = false
	}
	at := start
	serve := func(i, limit int) {
		head := &walk[i]
		n := head.of.largest(head.due-at, min(limit, head.of.batch))
		if n == 0 {
			late++
			return
		}
		served := 0
		for j := i; j < len(walk) && served < n; j++ {
			if o := &walk[j]; o.of == head.of && !o.in {
				o.in = true
				served++
			}
		}
		at += time.Duration(part * float64(max(head.of.real, head.of.time(served))))
	}
	serve(slices.IndexFunc(walk, func(c candidate) bool { return c.of == of }), limit)
	for i := range walk {
		if !walk[i].in {
			serve(i, len(walk))
		}
	}
	return late
}
