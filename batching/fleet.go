package batching

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// kind groups the instances that have the same batch size and the same times. A
// function has few kinds, however many instances.
type kind struct {
	batch int
	// reach is how many requests an instance takes at once: one batch, or several
	// short ones.
	reach int
	exec  []time.Duration
	// full is the largest batch that fills and executes in time when all
	// instances are busy. rate is what one instance serves in such batches, in
	// requests/s.
	full int
	rate float64
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
	// capacity is the sum of all rates, in requests/s. fastest is the shortest time
	// that any instance takes for one request.
	capacity float64
	fastest  time.Duration
}

// put adds an instance, or changes its kind.
func (f *fleet) put(in Instance, reach int, within time.Duration) {
	slot, known := f.slots.Give(in.ID)
	if slot == len(f.members) {
		f.members = append(f.members, member{})
	}
	m := &f.members[slot]
	if !known {
		*m = member{id: in.ID}
		f.free++
	}
	old, now := m.kind, f.kind(in.Exec[:in.Config.Batch], reach)
	if old == now {
		return
	}
	m.kind = now
	now.count++
	if m.inFlight == 0 {
		now.free.Add(slot)
	}
	if old != nil {
		f.leave(old, slot)
	}
	f.measure(within)
}

// kind returns the kind with those times and that reach.
func (f *fleet) kind(exec []time.Duration, reach int) *kind {
	for _, k := range f.kinds {
		if k.reach == reach && slices.Equal(k.exec, exec) {
			return k
		}
	}
	k := &kind{batch: len(exec), reach: reach, exec: slices.Clone(exec)}
	f.kinds = append(f.kinds, k)
	return k
}

func (f *fleet) leave(k *kind, slot int) {
	k.free.Remove(slot)
	if k.count--; k.count == 0 {
		f.kinds = slices.DeleteFunc(f.kinds, func(o *kind) bool { return o == k })
	}
}

// remove takes an instance out.
func (f *fleet) remove(id cluster.InstanceID, within time.Duration) {
	slot, known := f.slots.Find(id)
	if !known {
		return
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
	f.measure(within)
}

// measure calculates the values that depend on all instances. With N busy
// instances, one becomes free every t/N. A request waits for that and then for its
// batch, so the largest useful batch has t + t/N ≤ within. For example with
// within = 200 ms and three instances, t may be 150 ms. If every instance had its
// own queue, t could only be 100 ms.
func (f *fleet) measure(within time.Duration) {
	f.capacity, f.fastest = 0, 0
	n := time.Duration(f.slots.Len())
	for i, k := range f.kinds {
		k.full = max(1, k.largest(within*n/(n+1), k.batch))
		k.rate = float64(k.full) / max(k.exec[k.full-1].Seconds(), 1e-9)
		f.capacity += float64(k.count) * k.rate
		if i == 0 || k.exec[0] < f.fastest {
			f.fastest = k.exec[0]
		}
	}
}

// engage gives n requests to the instance in that slot.
func (f *fleet) engage(slot int, now time.Duration, n int) {
	m := &f.members[slot]
	start := now
	if m.inFlight == 0 {
		m.kind.free.Remove(slot)
		f.free--
	} else {
		f.busy.Remove(Busy{Until: m.freeAt, Slot: slot})
		start = max(now, m.freeAt)
	}
	m.inFlight++
	m.behind = m.kind.time(n)
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
	if m.inFlight--; m.inFlight > 0 {
		m.freeAt = now + m.behind // The batch behind begins now.
		f.busy.Add(Busy{Until: m.freeAt, Slot: slot})
		return
	}
	m.kind.free.Add(slot)
	f.free++
}

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
