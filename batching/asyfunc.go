package batching

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// AsyFunc is AsyFunc's adaptive scheduling (SoCC 2023, §5.1, Algorithm 3). One queue gathers
// requests. A batch goes to the smallest idle instance that answers it in time and that could
// not if it waited for one more request. So the larger instances are left for bursts.
//
// It differs from the print in what the print leaves open. "One more request" is the time of a
// batch of |Q|+1, begun when the next request is expected, in place of t·(1+|Q|)/|Q|. A timer
// sends the last requests, which would wait for ever. An instance gets no more than it takes.
// If no idle instance answers all in time, the largest gets as many as it can answer in time,
// the latest as printed, or the earliest if they are as many; the others wait for another
// instance. Only a request that nobody can answer in time any more is rejected. Nothing is
// sent while no instance is idle.
type AsyFunc struct {
	options   Options
	clock     clock
	slots     Slots
	instances []adaptiveInstance
	groups    groups
	// sizes has the instances that are alike, smallest first.
	sizes []*size
	lanes [MaxClasses]queue
	rates [MaxClasses]arrivalRate
	// due is when the policy must look again.
	due     time.Duration
	waiting int
	actions []Action
	ids     []RequestID
}

// adaptiveInstance is an instance with those that are like it.
type adaptiveInstance struct {
	Instance
	group *group
	size  *size
	busy  bool
}

// size has the instances that serve the same classes in the same times.
type size struct {
	group *group
	// exec[b-1] is the time of a batch of b, up to the largest that they take.
	exec  []time.Duration
	idle  Set
	count int
}

// NewAsyFunc returns AsyFunc's policy.
func NewAsyFunc(o Options) *AsyFunc { return &AsyFunc{options: o, groups: newGroups(), due: farthest} }

// Add implements [Policy].
func (p *AsyFunc) Add(at time.Time, r Request) {
	now := p.clock.since(at)
	p.rates[r.Class%MaxClasses].add(now)
	p.lanes[p.groups.lanes.of[r.Class]].add(p.options.waiter(&p.clock, at, r))
	p.waiting++
}

// Cancel implements [Policy].
func (p *AsyFunc) Cancel(_ time.Time, id RequestID) bool {
	for i := range p.lanes {
		if p.lanes[i].remove(id) {
			p.waiting--
			return true
		}
	}
	return false
}

// Waiting implements [Policy].
func (p *AsyFunc) Waiting() int { return p.waiting }

// Up implements [Policy]. A body that gets a shadow comes up again with the pair's times.
func (p *AsyFunc) Up(_ time.Time, in Instance) {
	in = p.options.bounded(in)
	slot, known := p.slots.Give(in.ID)
	if slot == len(p.instances) {
		p.instances = append(p.instances, adaptiveInstance{})
	}
	m := &p.instances[slot]
	old := *m
	m.Instance = in
	var changed, left change
	m.group, changed = p.groups.join(in.Serves(), in.Exec[0])
	if known {
		p.part(slot, old.size)
		left = p.groups.leave(old.group, old.Exec[0])
	}
	p.join(slot)
	if changed.or(left).lanes {
		p.sort()
	}
}

// join adds an instance to those of its size.
func (p *AsyFunc) join(slot int) {
	m := &p.instances[slot]
	exec := m.Exec[:m.Config.Batch]
	i := slices.IndexFunc(p.sizes, func(s *size) bool { return s.group == m.group && slices.Equal(s.exec, exec) })
	if i < 0 {
		i = len(p.sizes)
		p.sizes = append(p.sizes, &size{group: m.group, exec: slices.Clone(exec)})
	}
	m.size = p.sizes[i]
	m.size.count++
	if !m.busy {
		m.size.idle.Add(slot)
	}
	if m.size.count == 1 {
		slices.SortStableFunc(p.sizes, func(a, b *size) int {
			return cmp.Or(cmp.Compare(len(a.exec), len(b.exec)), cmp.Compare(b.exec[len(b.exec)-1], a.exec[len(a.exec)-1]))
		})
	}
}

// part removes an instance from those of a size.
func (p *AsyFunc) part(slot int, from *size) {
	from.idle.Remove(slot)
	if from.count--; from.count == 0 {
		p.sizes = slices.DeleteFunc(p.sizes, func(s *size) bool { return s == from })
	}
}

// Down implements [Policy].
func (p *AsyFunc) Down(_ time.Time, id cluster.InstanceID) {
	slot, known := p.slots.Find(id)
	if !known {
		return
	}
	m := &p.instances[slot]
	p.slots.Drop(id)
	p.part(slot, m.size)
	left := p.groups.leave(m.group, m.Exec[0])
	*m = adaptiveInstance{}
	if left.lanes {
		p.sort()
	}
}

// sort puts all requests into their lanes after the lanes changed.
func (p *AsyFunc) sort() {
	var all []waiter
	for i := range p.lanes {
		all = append(all, p.lanes[i].drain()...)
	}
	// IDs ascend with arrivals, which is the order of requests with the same deadline.
	slices.SortStableFunc(all, func(a, b waiter) int { return cmp.Compare(a.due, b.due) })
	for _, w := range all {
		p.lanes[p.groups.lanes.of[w.class]].add(w)
	}
}

// Done implements [Policy].
func (p *AsyFunc) Done(_ time.Time, id cluster.InstanceID) {
	if slot, known := p.slots.Find(id); known {
		m := &p.instances[slot]
		m.busy = false
		m.size.idle.Add(slot)
	}
}

// Actions implements [Policy].
func (p *AsyFunc) Actions(at time.Time) []Action {
	p.actions, p.ids, p.due = p.actions[:0], p.ids[:0], farthest
	if p.waiting == 0 {
		return nil
	}
	now := p.clock.since(at)
	for rest := p.groups.lanes.all; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		q := &p.lanes[lane]
		if q.len() == 0 {
			continue
		}
		p.expire(now, lane)
		next := farthest
		for sent := true; sent && q.len() > 0; {
			sent, next = p.schedule(now, lane)
		}
		if q.len() > 0 {
			p.due = min(p.due, next, q.at(0).due-p.groups.least[lane]+1)
		}
	}
	return p.actions
}

// expire rejects the lane's requests that even a batch of one, started now, would answer too
// late.
func (p *AsyFunc) expire(now time.Duration, lane int) {
	q, from := &p.lanes[lane], len(p.ids)
	p.ids = q.take(0, q.before(now+p.groups.least[lane]), p.ids)
	for _, id := range p.ids[from:] {
		p.actions = append(p.actions, Action{Reject: id, Reason: Late})
	}
	p.waiting -= len(p.ids) - from
}

// gap is the expected time to the lane's next request.
func (p *AsyFunc) gap(now time.Duration, lane int) time.Duration {
	rate := 0.0
	for rest := p.groups.lanes.inside[lane]; rest != 0; rest &= rest - 1 {
		rate += p.rates[lowest(rest)].at(now)
	}
	if rate < 1e-6 {
		return farthest
	}
	return time.Duration(float64(time.Second) / rate)
}

// schedule is Algorithm 3 for one batch of a lane that has requests. If it sends none, next is
// when it must look again.
func (p *AsyFunc) schedule(now time.Duration, lane int) (sent bool, next time.Duration) {
	q := &p.lanes[lane]
	due, next, waits := q.at(0).due, farthest, false
	var gap time.Duration
	for _, s := range p.sizes {
		if s.idle.Len() == 0 || !has(s.group.lanes, lane) {
			continue
		}
		n := min(q.len(), len(s.exec))
		if now+s.exec[n-1] > due {
			continue
		}
		if n == len(s.exec) {
			p.send(lane, s, 0, n)
			return true, 0
		}
		if gap == 0 {
			gap = p.gap(now, lane)
		}
		last := q.hold(n) - s.exec[n] - timerSlack - gap
		if last <= now {
			p.send(lane, s, 0, n)
			return true, 0
		}
		waits, next = true, min(next, last)
	}
	if waits {
		return false, next
	}
	for _, s := range slices.Backward(p.sizes) {
		if s.idle.Len() > 0 && has(s.group.lanes, lane) {
			if from, n := portion(q, now, s.exec); n > 0 {
				p.send(lane, s, from, n)
				return true, 0
			}
		}
	}
	return false, farthest
}

// portion is the largest batch of consecutive requests that an instance answers in time: of
// the latest ones, or of the earliest if these are as many.
func portion(q *queue, now time.Duration, exec []time.Duration) (from, n int) {
	for n = min(q.len(), len(exec)); n > 0 && now+exec[n-1] > q.at(0).due; n-- {
	}
	for k := min(q.len(), len(exec)); k > n; k-- {
		if first := q.len() - k; now+exec[k-1] <= q.at(first).due {
			return first, k
		}
	}
	return 0, n
}

// send gives requests of a lane to an idle instance of a size.
func (p *AsyFunc) send(lane int, to *size, first, n int) {
	slot, at := to.idle.First(), len(p.ids)
	in := &p.instances[slot]
	p.ids = p.lanes[lane].take(first, n, p.ids)
	p.waiting -= n
	in.busy = true
	to.idle.Remove(slot)
	p.actions = append(p.actions, Action{Instance: in.ID, Dispatch: p.ids[at:len(p.ids):len(p.ids)]})
}

// Next implements [Policy].
func (p *AsyFunc) Next() (time.Time, bool) {
	if p.waiting == 0 {
		return time.Time{}, false
	}
	return p.clock.time(p.due), true
}
