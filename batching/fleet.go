package batching

import (
	"math/bits"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// kind groups the instances that have the same batch size, times and classes. A
// function has few kinds, however many instances.
type kind struct {
	// classes are those that it may answer; lanes are theirs.
	classes, lanes uint16
	batch          int
	// reach is how many requests an instance takes at once: one batch, or several
	// short ones.
	reach int
	exec  []time.Duration
	// sizes says how exec changes with the size of the rows, nil if it does not. sized has the kinds that
	// of returned, by size; planned is what such a kind was made of, nil for others.
	sizes   Sizes
	sized   map[work]*kind
	planned *kind
	// padTo is [Instance.Longest]. buckets are the largest sizes that count as one with smaller ones,
	// ascending, as far as they were asked for.
	padTo   int64
	buckets []int64
	// real is the time of a request that is too long for its deadline on any free instance, 0 for others.
	real time.Duration
	// stream: it is a stream of an instance that has several.
	stream bool
	// full is the largest batch that fills and executes in time when all
	// instances are busy. rate is what one instance serves in such batches, in
	// requests/s.
	full int
	rate float64
	// brief is reach, or less if recent requests have shorter objectives than the
	// function: as many requests as execute while such a request can wait. single: rows gain
	// nothing together, so it executes one at a time, and brief is 1.
	brief  int
	single bool
	// within is the shortest time from arrival to deadline that its requests have; hurried: it is shorter
	// than the function's. longest is the time of the longest batch that is useful for them.
	within, longest time.Duration
	hurried         bool
	// count is the number of instances. free holds the slots of the idle ones.
	count int
	free  Set
	// patience is how long the kind's next batch waits.
	patience patience
}

// member is an instance and its work.
type member struct {
	id   cluster.InstanceID
	kind *kind
	// inFlight counts its batches; it executes the first. freeAt is when the last
	// should be done, and behind is how long the last takes.
	inFlight       int
	freeAt, behind time.Duration
	// began is when it began the first, which takes current by its kind's times.
	began, current time.Duration
	// hopeless: it executes a request that is late in any case; next: the batch behind is one.
	hopeless, next bool
}

// fleet holds a function's instances for [Shared]: the free ones by kind, and
// when each busy one becomes free.
type fleet struct {
	slots   Slots
	members []member
	kinds   []*kind
	free    int
	// busy has the instances that execute, by the time at which they become free.
	busy Agenda
	// least is the least brief of all kinds. sized: the times of some change with the size of the rows.
	least int
	sized bool
	// lanes are those of the kinds' classes, served has what serves each.
	lanes  lanes
	served [MaxClasses]served
	pace   Pace
	// slack is the part of the time that deadlines leave for the way back which it seldom takes. It counts where a request
	// is otherwise refused.
	slack time.Duration
}

// served says what serves a lane.
type served struct {
	// instances is their number, capacity the sum of their rates in requests/s, and
	// fastest the shortest time that any of them takes for one request.
	instances int
	capacity  float64
	fastest   time.Duration
	// rivals are the classes that no other instances serve; the lane's are among them.
	rivals uint16
}

// put adds an instance, or changes its kind. It reports whether the kinds changed.
func (f *fleet) put(in Instance, reach int) (changed bool) {
	slot, known := f.slots.Give(in.ID)
	if slot == len(f.members) {
		f.members = append(f.members, member{})
	}
	m := &f.members[slot]
	if !known {
		*m = member{id: in.ID}
		f.free++
	}
	old, now := m.kind, f.kind(in, reach)
	if old == now {
		return false
	}
	m.kind = now
	now.count++
	if m.inFlight == 0 {
		now.free.Add(slot)
	}
	if old != nil {
		f.leave(old, slot)
	}
	return true
}

// kind returns the kind with an instance's times and classes, and that reach.
func (f *fleet) kind(in Instance, reach int) *kind {
	exec, classes, stream := in.Exec[:in.Config.Batch], in.Serves(), in.Config.Streams() > 1
	for _, k := range f.kinds {
		same := k.reach == reach && k.classes == classes && k.stream == stream && k.sizes == in.Sizes && k.padTo == in.Longest
		if same && slices.Equal(k.exec, exec) {
			return k
		}
	}
	k := &kind{batch: len(exec), reach: reach, exec: slices.Clone(exec), classes: classes, sizes: in.Sizes, padTo: in.Longest, stream: stream}
	f.kinds = append(f.kinds, k)
	return k
}

func (f *fleet) leave(k *kind, slot int) {
	k.free.Remove(slot)
	if k.count--; k.count == 0 {
		f.kinds = slices.DeleteFunc(f.kinds, func(o *kind) bool { return o == k })
	}
}

// remove takes an instance out and reports whether it was in.
func (f *fleet) remove(id cluster.InstanceID) bool {
	slot, known := f.slots.Find(id)
	if !known {
		return false
	}
	m := &f.members[slot]
	if m.inFlight == 0 {
		f.free--
	} else {
		f.busy.Remove(Busy{Until: m.freeAt, Slot: slot})
	}
	f.slots.Drop(id)
	f.leave(m.kind, slot)
	*m = member{}
	return true
}

// measure calculates the values that depend on all instances. within is the time from
// arrival to deadline that the function's objective gives, r the recent requests. It
// reports whether the lanes changed.
func (f *fleet) measure(within time.Duration, r *recent) (changed bool) {
	before := f.lanes.of
	sets := make([]uint16, len(f.kinds))
	for i, k := range f.kinds {
		sets[i] = k.classes
	}
	f.lanes, f.served = newLanes(sets), [MaxClasses]served{}
	for _, k := range f.kinds {
		k.lanes = f.lanes.having(k.classes)
		for rest := k.lanes; rest != 0; rest &= rest - 1 {
			f.served[lowest(rest)].instances += k.count
		}
	}
	f.least, f.sized, f.slack = maxReach, false, Travel(within)/2
	for _, k := range f.kinds {
		f.scale(k, within, r)
		f.least, f.sized, f.slack = min(f.least, k.brief), f.sized || k.varies(), min(f.slack, Travel(k.within)/2)
		for rest := k.lanes; rest != 0; rest &= rest - 1 {
			l := &f.served[lowest(rest)]
			if l.capacity == 0 || k.exec[0] < l.fastest {
				l.fastest = k.exec[0]
			}
			l.capacity += float64(k.count) * k.rate
		}
	}
	for rest := f.lanes.all; rest != 0; rest &= rest - 1 {
		f.served[lowest(rest)].rivals = f.rivals(lowest(rest))
	}
	return f.lanes.of != before
}

// scale calculates the batches of a kind that are useful for its requests. With N busy
// instances, one becomes free every t/N. A request waits for that and then for its
// batch, so the largest useful batch has t + t/N ≤ within. For example with
// within = 200 ms and three instances, t may be 150 ms. If every instance had its
// own queue, t could only be 100 ms.
func (f *fleet) scale(k *kind, within time.Duration, r *recent) {
	n := f.slots.Len()
	k.within = within
	for rest := k.classes & r.classes; rest != 0; rest &= rest - 1 {
		c := lowest(rest)
		n = min(n, f.served[f.lanes.of[c]].instances)
		k.within = min(k.within, r.least[c])
	}
	k.longest, k.hurried = k.within*time.Duration(n)/time.Duration(n+1), k.within < within
	k.fill()
	k.rate = float64(k.full) / max(k.exec[k.full-1].Seconds(), 1e-9)
	k.sized, k.buckets = nil, nil
}

// fill calculates the useful batches.
func (k *kind) fill() {
	k.full = max(1, k.largest(k.longest, k.batch))
	k.single = k.reach == k.batch && k.alone()
	switch k.brief = k.reach; {
	case k.single:
		k.brief = 1
	case k.hurried:
		k.brief = max(1, k.largest(k.longest, k.reach))
	}
}

const (
	// gain is by how much more than single requests batches must serve to be worth it.
	gain = 1.05
	// exchange is what a batch takes beside its execution.
	exchange = DefaultShortExec / 2
)

// alone reports whether rows gain nothing together, so that the first of a batch would only wait for
// the last. For example with t(1) = 100 ms, t(2) = 195 ms and t(8) = 770 ms a batch of 8 serves 10.4
// requests/s and single requests 10. With t(8) = 600 ms batches are worth it.
func (k *kind) alone() bool {
	rate := func(b int) float64 { return float64(b) / (k.exec[b-1] + exchange).Seconds() }
	for b := range k.batch {
		if rate(b+1) > gain*rate(1) {
			return false
		}
	}
	return k.batch > 1
}

// rivals returns the classes that only instances of that lane serve.
func (f *fleet) rivals(lane int) (classes uint16) {
	classes = every
	for _, k := range f.kinds {
		if !has(k.lanes, lane) {
			classes &^= k.classes
		}
	}
	return classes
}

// engage gives n requests, which it executes as one of kind k does, to the instance in that slot.
func (f *fleet) engage(slot int, now time.Duration, n int, k *kind) {
	m := &f.members[slot]
	start := now
	if m.inFlight == 0 {
		m.kind.free.Remove(slot)
		f.free--
	} else {
		f.busy.Remove(Busy{Until: m.freeAt, Slot: slot})
		start = max(now, m.freeAt)
	}
	m.behind = max(k.real, k.time(n))
	m.next = k.real > 0
	if m.inFlight++; m.inFlight == 1 {
		m.began, m.current, m.hopeless = start, m.behind, m.next
	}
	m.freeAt = start + m.behind
	f.busy.Add(Busy{Until: m.freeAt, Slot: slot})
}

// done notes that an instance finished a batch.
func (f *fleet) done(id cluster.InstanceID, now time.Duration) {
	slot, known := f.slots.Find(id)
	if !known || f.members[slot].inFlight == 0 {
		return
	}
	m := &f.members[slot]
	f.busy.Remove(Busy{Until: m.freeAt, Slot: slot})
	f.pace.Add(now-m.began, m.current)
	if m.inFlight--; m.inFlight > 0 {
		m.began, m.current, m.hopeless = now, m.behind, m.next // The batch behind begins now.
		m.freeAt = now + m.behind
		f.busy.Add(Busy{Until: m.freeAt, Slot: slot})
		return
	}
	m.hopeless = false
	m.kind.free.Add(slot)
	f.free++
}

// freeLanes returns the lanes that a free instance serves.
func (f *fleet) freeLanes() (lanes uint16) {
	for _, k := range f.kinds {
		if k.free.Len() > 0 {
			lanes |= k.lanes
		}
	}
	return lanes
}

// rivalling is the number of instances that serve any of those lanes.
func (f *fleet) rivalling(lanes uint16) (n int) {
	for _, k := range f.kinds {
		if k.lanes&lanes != 0 {
			n += k.count
		}
	}
	return n
}

// width is the number of classes that the kind serves.
func (k *kind) width() int { return bits.OnesCount16(k.classes) }

// time is how long n requests take in consecutive batches.
func (k *kind) time(n int) time.Duration {
	if n <= k.batch {
		return k.exec[n-1]
	}
	t := time.Duration(n/k.batch) * k.exec[k.batch-1]
	if rest := n % k.batch; rest > 0 {
		t += k.exec[rest-1]
	}
	return t
}

// largest returns the largest b ≤ limit whose execution takes at most slack.
func (k *kind) largest(slack time.Duration, limit int) int {
	if limit <= 0 || k.time(limit) <= slack {
		return max(0, limit)
	}
	lo, hi := 0, limit-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if k.time(mid) <= slack {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}
