package batching

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Buffer has one batch size B and timeout T for a function (BATCH §III-B): one buffer gathers
// requests before the platform. If the instances serve different classes of requests,
// there is one for each lane, so that every batch fits an instance. A batch leaves the buffer when it has B requests or
// when its first request has waited for the timeout T, whether or not an instance
// is free. It is never filled up afterwards. Batches wait for a free instance in
// the order in which they left.
//
// B and T are Config.Batch and Timeout of the instance for these requests that came up or
// changed last. A new choice of a tuner thus applies as soon as its first instance is
// up. An instance that takes less than a batch executes the first part; the rest
// stays at the front. BATCH assumes a platform that always has an instance and
// drops nothing. Here, as with every policy, a request is rejected once not even a
// batch of one could answer it in time.
type Buffer struct {
	options   Options
	clock     clock
	slots     Slots
	instances []bufferInstance
	groups    groups
	// batch and timeout are B and T by class. batch is 0 until the first instance that
	// serves the class is up.
	batch   [MaxClasses]int
	timeout [MaxClasses]time.Duration
	lanes   [MaxClasses]bufferLane
	// orders counts the batches that were formed.
	orders uint64
	// waiting counts the requests in all lanes.
	waiting int
	actions []Action
	ids     []RequestID
}

type bufferInstance struct {
	Instance
	group *group
	busy  bool
}

// bufferLane has the requests of a lane.
type bufferLane struct {
	// buffer gathers requests; its first one came at since.
	buffer queue
	since  time.Duration
	formed batches
}

// NewBuffer returns a Buffer.
func NewBuffer(o Options) *Buffer { return &Buffer{options: o, groups: newGroups()} }

// Add implements [Policy].
func (p *Buffer) Add(at time.Time, r Request) {
	now := p.clock.since(at)
	p.gather(waiter{id: r.ID, due: p.clock.since(r.Deadline), class: r.Class}, now)
	p.waiting++
}

// gather puts a request that came at since into the buffer of its lane.
func (p *Buffer) gather(w waiter, since time.Duration) {
	l := &p.lanes[p.groups.lanes.of[w.class]]
	if l.buffer.len() == 0 || since < l.since {
		l.since = since
	}
	l.buffer.add(w)
}

// Cancel implements [Policy].
func (p *Buffer) Cancel(_ time.Time, id RequestID) bool {
	for i := range p.lanes {
		if l := &p.lanes[i]; l.buffer.remove(id) || l.formed.remove(id) {
			p.waiting--
			return true
		}
	}
	return false
}

// Waiting implements [Policy].
func (p *Buffer) Waiting() int { return p.waiting }

// Up implements [Policy].
func (p *Buffer) Up(_ time.Time, in Instance) {
	in = p.options.bounded(in)
	slot, known := p.slots.Give(in.ID)
	if slot == len(p.instances) {
		p.instances = append(p.instances, bufferInstance{})
	}
	m := &p.instances[slot]
	old := *m
	m.Instance = in
	var changed, left change
	m.group, changed = p.groups.join(in.Serves(), in.Exec[0])
	if known {
		old.group.idle.Remove(slot)
		left = p.groups.leave(old.group, old.Exec[0])
	}
	if !m.busy {
		m.group.idle.Add(slot)
	}
	for rest := m.group.classes; rest != 0; rest &= rest - 1 {
		p.batch[lowest(rest)], p.timeout[lowest(rest)] = in.Config.Batch, in.Timeout
	}
	if changed.or(left).lanes {
		p.sort()
	}
}

// Down implements [Policy].
func (p *Buffer) Down(_ time.Time, id cluster.InstanceID) {
	slot, known := p.slots.Find(id)
	if !known {
		return
	}
	m := &p.instances[slot]
	p.slots.Drop(id)
	m.group.idle.Remove(slot)
	if p.groups.leave(m.group, m.Exec[0]).lanes {
		p.sort()
	}
	*m = bufferInstance{}
}

// sort puts all requests into their lanes after the lanes changed. It divides a batch
// whose requests are in different lanes now.
func (p *Buffer) sort() {
	old := p.lanes
	p.lanes = [MaxClasses]bufferLane{}
	var all []formed
	for i := range old {
		for _, w := range old[i].buffer.drain() {
			p.gather(w, old[i].since)
		}
		all = append(all, old[i].formed.drain()...)
	}
	slices.SortStableFunc(all, func(a, b formed) int { return cmp.Compare(a.order, b.order) })
	for _, run := range all {
		for lanes := p.groups.lanes.all; lanes != 0; lanes &= lanes - 1 {
			var part []waiter
			for _, w := range run.waiting {
				if int(p.groups.lanes.of[w.class]) == lowest(lanes) {
					part = append(part, w)
				}
			}
			if len(part) > 0 {
				p.lanes[lowest(lanes)].formed.push(run.order, part, nil)
			}
		}
	}
}

// Done implements [Policy].
func (p *Buffer) Done(_ time.Time, id cluster.InstanceID) {
	if slot, known := p.slots.Find(id); known {
		m := &p.instances[slot]
		m.busy = false
		m.group.idle.Add(slot)
	}
}

// Actions implements [Policy].
func (p *Buffer) Actions(at time.Time) []Action {
	p.actions, p.ids = p.actions[:0], p.ids[:0]
	if p.waiting == 0 {
		return nil
	}
	now := p.clock.since(at)
	for rest := p.groups.lanes.all; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		p.form(now, lane)
		p.expire(now, lane)
	}
	for p.dispatch() {
	}
	return p.actions
}

// form makes full batches of the gathered requests. It also makes one of the
// remainder if its first request has waited for the timeout.
func (p *Buffer) form(now time.Duration, lane int) {
	l, batch := &p.lanes[lane], p.batch[lane]
	if batch == 0 {
		return
	}
	for l.buffer.len() > 0 {
		n := l.buffer.len()
		if n < batch && now < l.since+p.timeout[lane] {
			return
		}
		n = min(n, batch)
		before, behind := l.buffer.parts(0, n)
		p.orders++
		l.formed.push(p.orders, before, behind)
		l.buffer.drop(0, n)
	}
}

// dispatch gives an idle instance as much as it takes of the batch that was formed
// first of those that it or another idle instance serves. It prefers the instance that
// serves the fewest classes. It reports whether there was such a batch.
func (p *Buffer) dispatch() bool {
	var first uint64
	var to *group
	var from *bufferLane
	for rest := p.groups.lanes.all; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		order, ok := p.lanes[lane].formed.front()
		if !ok || to != nil && order > first {
			continue
		}
		for _, g := range p.groups.all {
			if has(g.lanes, lane) && g.idle.Len() > 0 {
				first, to, from = order, g, &p.lanes[lane]
				break
			}
		}
	}
	if to == nil {
		return false
	}
	slot, at := to.idle.First(), len(p.ids)
	in := &p.instances[slot]
	p.ids = from.formed.pop(in.Config.Batch, p.ids)
	p.waiting -= len(p.ids) - at
	in.busy = true
	to.idle.Remove(slot)
	p.actions = append(p.actions, Action{Instance: in.ID, Dispatch: p.ids[at:len(p.ids):len(p.ids)]})
	return true
}

// expire rejects the lane's requests that even a batch of one, started now, would answer
// too late.
func (p *Buffer) expire(now time.Duration, lane int) {
	l, from, soonest := &p.lanes[lane], len(p.ids), now+p.groups.least[lane]
	p.ids = l.formed.before(soonest, p.ids)
	if l.buffer.len() > 0 && l.buffer.at(0).due < soonest {
		p.ids = l.buffer.take(0, l.buffer.before(soonest), p.ids)
	}
	for _, id := range p.ids[from:] {
		p.actions = append(p.actions, Action{Reject: id, Reason: Late})
	}
	p.waiting -= len(p.ids) - from
}

// Next implements [Policy].
func (p *Buffer) Next() (time.Time, bool) {
	if p.waiting == 0 {
		return time.Time{}, false
	}
	at := farthest
	for lanes := p.groups.lanes.all; lanes != 0; lanes &= lanes - 1 {
		lane := lowest(lanes)
		l := &p.lanes[lane]
		// One past the last instant at which a request could still be served.
		late := p.groups.least[lane] - 1
		if due, some := l.formed.first(); some {
			at = min(at, due-late)
		}
		if l.buffer.len() == 0 {
			continue
		}
		at = min(at, l.buffer.at(0).due-late)
		if p.batch[lane] > 0 {
			at = min(at, l.since+p.timeout[lane])
		}
	}
	return p.clock.time(at), true
}
