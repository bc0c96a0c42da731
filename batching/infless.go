package batching

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// InFless is INFless' own policy (§3.2). Every instance has a queue of one batch
// that fills while the batch before it executes. The policy submits a batch when it
// is full, or when its first request has waited t_slo − t_exec. It deals requests
// out to the instances that serve them in proportion to their rates r_i. The scaling
// engine keeps those within [r_low, r_up].
//
// If all queues are full, the paper drops the request (Fig. 6a). Here it waits in
// an overflow queue for as long as its deadline allows. That can only raise the
// policy's throughput.
type InFless struct {
	options   Options
	clock     clock
	slots     Slots
	instances []inflessInstance
	groups    groups
	// turn is the latest turn at which a request was dealt.
	turn float64
	// events has the instances with requests, by when they must be looked at.
	events Ranking[time.Duration]
	// overflow has requests by lane, spilled the lanes that have some.
	overflow [MaxClasses]queue
	spilled  uint16
	waiting  int
	actions  []Action
	ids      []RequestID
}

// inflessInstance is an instance with the batch that fills for it.
type inflessInstance struct {
	Instance
	group   *group
	filling queue
	busy    bool
	// turn says when the instance gets its next request, in virtual time: each
	// request moves it on by 1/r_i. While the batch is full, turn is relative to
	// the policy's turn.
	turn float64
}

// NewInFless returns INFless' policy.
func NewInFless(o Options) *InFless { return &InFless{options: o, groups: newGroups()} }

// Add implements [Policy].
func (p *InFless) Add(now time.Time, r Request) {
	p.waiting++
	p.deal(p.options.waiter(&p.clock, now, r))
}

// deal puts w into the batch of the instance whose turn it is by rate, or into
// the overflow queue if no batch has room.
func (p *InFless) deal(w waiter) {
	to := p.room(w.class)
	if to == nil {
		p.spill(w)
		return
	}
	slot, turn := to.turns.First()
	// An instance for which no requests came does not get its part of the past.
	turn = max(turn, p.turn)
	in := &p.instances[slot]
	in.filling.add(w)
	in.turn = turn + in.step()
	p.turn = turn
	if in.filling.len() < in.Config.Batch {
		to.turns.Set(slot, in.turn)
	} else {
		to.turns.Remove(slot)
		in.turn -= p.turn
	}
	p.plan(slot)
	if p.turn > maxTurn {
		p.rebase()
	}
}

// spill puts w into the overflow queue of its lane.
func (p *InFless) spill(w waiter) {
	lane := p.groups.lanes.of[w.class]
	p.overflow[lane].add(w)
	p.spilled |= 1 << lane
}

// room returns the group with the instance whose turn it is of those that serve the
// class and whose batches have room; nil if there is none.
func (p *InFless) room(class uint8) (to *group) {
	var first float64
	var at int
	for _, g := range p.groups.all {
		if g.turns.Len() == 0 || !has(g.classes, int(class)) {
			continue
		}
		if slot, turn := g.turns.First(); to == nil || turn < first || turn == first && slot < at {
			to, first, at = g, turn, slot
		}
	}
	return to
}

// step is 1/r_i.
func (in *Instance) step() float64 { return 1 / max(in.Rate, 1e-6) }

// maxTurn is the turn from which turns begin at 0 again, so small steps are not
// lost in rounding: at 10⁶ s a float64 still resolves 10⁻¹⁰ s.
const maxTurn = 1e6

// rebase makes the present turn 0.
func (p *InFless) rebase() {
	for _, g := range p.groups.all {
		g.turns.Move(func(slot int, turn float64) float64 {
			p.instances[slot].turn = turn - p.turn
			return turn - p.turn
		})
	}
	p.turn = 0
}

// open adds the instance to its group's turns if its batch has room, and removes it
// otherwise.
func (p *InFless) open(slot int) {
	in := &p.instances[slot]
	room, was := in.filling.len() < in.Config.Batch, in.group.turns.Has(slot)
	switch {
	case room && !was:
		in.turn += p.turn
		in.group.turns.Set(slot, in.turn)
	case !room && was:
		p.shut(slot)
	}
}

// shut removes the instance from its group's turns if it is there.
func (p *InFless) shut(slot int) {
	in := &p.instances[slot]
	if in.group.turns.Has(slot) {
		in.group.turns.Remove(slot)
		in.turn -= p.turn
	}
}

// Cancel implements [Policy].
func (p *InFless) Cancel(_ time.Time, id RequestID) bool {
	for rest := p.spilled; rest != 0; rest &= rest - 1 {
		if lane := lowest(rest); p.overflow[lane].remove(id) {
			p.waiting--
			p.emptied(lane)
			return true
		}
	}
	for slot := range p.instances {
		if p.instances[slot].filling.remove(id) {
			p.waiting--
			p.open(slot)
			p.plan(slot)
			return true
		}
	}
	return false
}

// emptied notes whether a lane's overflow queue is empty.
func (p *InFless) emptied(lane int) {
	if p.overflow[lane].len() == 0 {
		p.spilled &^= 1 << lane
	}
}

// Waiting implements [Policy].
func (p *InFless) Waiting() int { return p.waiting }

// Up implements [Policy].
func (p *InFless) Up(_ time.Time, in Instance) {
	in = p.options.bounded(in)
	slot, known := p.slots.Give(in.ID)
	if slot == len(p.instances) {
		p.instances = append(p.instances, inflessInstance{})
	}
	m := &p.instances[slot]
	old := *m
	m.Instance = in
	var changed, left change
	m.group, changed = p.groups.join(in.Serves(), in.Exec[0])
	if known {
		// The time left until its turn scales with the rate.
		m.turn = old.turn
		if old.group.turns.Has(slot) {
			old.group.turns.Remove(slot)
			m.turn -= p.turn
		}
		m.turn *= in.step() / old.step()
		left = p.groups.leave(old.group, old.Exec[0])
	} else {
		m.turn = in.step() / 2
	}
	misfits := m.misfits()
	p.open(slot)
	p.plan(slot)
	p.adapt(changed.or(left))
	for _, w := range misfits {
		p.deal(w)
	}
}

// misfits takes out the requests that the instance does not serve.
func (in *inflessInstance) misfits() (out []waiter) {
	for i := 0; i < in.filling.len(); {
		if w := *in.filling.at(i); !has(in.group.classes, int(w.class)) {
			out = append(out, w)
			in.filling.drop(i, 1)
			continue
		}
		i++
	}
	return out
}

// Down implements [Policy].
func (p *InFless) Down(_ time.Time, id cluster.InstanceID) {
	slot, known := p.slots.Find(id)
	if !known {
		return
	}
	m := &p.instances[slot]
	requests := m.filling.drain()
	p.slots.Drop(id)
	m.group.turns.Remove(slot)
	p.events.Remove(slot)
	left := p.groups.leave(m.group, m.Exec[0])
	*m = inflessInstance{filling: m.filling}
	p.adapt(left)
	for _, w := range requests {
		p.deal(w)
	}
}

// adapt sorts the overflow queues again if the lanes changed, and plans every instance
// again if the shortest times did.
func (p *InFless) adapt(changed change) {
	if changed.lanes {
		var all []waiter
		for rest := p.spilled; rest != 0; rest &= rest - 1 {
			all = append(all, p.overflow[lowest(rest)].drain()...)
		}
		p.spilled = 0
		for _, w := range all {
			p.spill(w)
		}
	}
	if changed.times {
		for slot := range p.instances {
			p.plan(slot)
		}
	}
}

// Done implements [Policy].
func (p *InFless) Done(_ time.Time, id cluster.InstanceID) {
	if slot, known := p.slots.Find(id); known {
		p.instances[slot].busy = false
		p.plan(slot)
	}
}

// plan notes when the instance's batch must be looked at: at once if it is full and
// the instance is idle, otherwise when it times out or its first request is late.
func (p *InFless) plan(slot int) {
	in := &p.instances[slot]
	switch n := in.filling.len(); {
	case n == 0:
		p.events.Remove(slot)
	case in.busy:
		p.events.Set(slot, p.late(in))
	case n >= in.Config.Batch:
		p.events.Set(slot, -farthest)
	default:
		p.events.Set(slot, in.timeout())
	}
}

// late is when the first request of the instance's batch, which has some, is late.
func (p *InFless) late(in *inflessInstance) time.Duration {
	if len(p.groups.all) == 1 {
		return in.filling.at(0).due - in.group.fastest.Least() + 1
	}
	at := farthest
	for i := range in.filling.len() {
		w := in.filling.at(i)
		at = min(at, w.due-p.groups.least[p.groups.lanes.of[w.class]]+1)
	}
	return at
}

// timeout is when a request of in's batch has waited t_slo − t_exec, less timerSlack.
func (in *inflessInstance) timeout() time.Duration {
	return in.filling.hold(in.filling.len()) - in.Exec[in.Config.Batch-1] - timerSlack
}

// Actions implements [Policy].
func (p *InFless) Actions(at time.Time) []Action {
	p.actions, p.ids = p.actions[:0], p.ids[:0]
	now := p.clock.since(at)
	for rest := p.spilled; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		q := &p.overflow[lane]
		p.reject(q, 0, q.before(now+p.groups.least[lane]))
		p.emptied(lane)
	}
	p.refill()
	for p.events.Len() > 0 {
		slot, due := p.events.First()
		if due > now {
			break
		}
		in := &p.instances[slot]
		// A batch that timed out is sent even if the timer fired late: predicted
		// times are on the safe side.
		if !in.busy {
			p.submit(slot)
		}
		p.expire(now, in)
		p.open(slot)
		p.plan(slot)
		p.refill()
	}
	return p.actions
}

// submit sends the instance's batch.
func (p *InFless) submit(slot int) {
	in := &p.instances[slot]
	first := len(p.ids)
	p.ids = in.filling.take(0, min(in.filling.len(), in.Config.Batch), p.ids)
	p.waiting -= len(p.ids) - first
	in.busy = true
	p.actions = append(p.actions, Action{Instance: in.ID, Dispatch: p.ids[first:len(p.ids):len(p.ids)]})
}

// refill deals out requests of the overflow queues while batches have room for them,
// earliest deadline first.
func (p *InFless) refill() {
	for p.spilled != 0 {
		var from *queue
		for rest := p.spilled; rest != 0; rest &= rest - 1 {
			lane := lowest(rest)
			q := &p.overflow[lane]
			if p.room(uint8(lane)) != nil && (from == nil || q.at(0).due < from.at(0).due) {
				from = q
			}
		}
		if from == nil {
			return
		}
		w := *from.at(0)
		from.drop(0, 1)
		p.emptied(int(p.groups.lanes.of[w.class]))
		p.deal(w)
	}
}

// Next implements [Policy].
func (p *InFless) Next() (time.Time, bool) {
	if p.waiting == 0 {
		return time.Time{}, false
	}
	at := farthest
	for rest := p.spilled; rest != 0; rest &= rest - 1 {
		lane := lowest(rest)
		at = min(at, p.overflow[lane].at(0).due-p.groups.least[lane]+1)
	}
	if p.events.Len() > 0 {
		_, due := p.events.First()
		at = min(at, due)
	}
	return p.clock.time(at), true
}

// expire rejects the requests of the instance's batch that even a batch of one cannot
// answer in time.
func (p *InFless) expire(now time.Duration, in *inflessInstance) {
	q := &in.filling
	if len(p.groups.all) == 1 {
		p.reject(q, 0, q.before(now+in.group.fastest.Least()))
		return
	}
	for i := q.len() - 1; i >= 0; i-- {
		if w := q.at(i); w.due < now+p.groups.least[p.groups.lanes.of[w.class]] {
			p.reject(q, i, 1)
		}
	}
}

// reject rejects n requests of q from the i-th on.
func (p *InFless) reject(q *queue, i, n int) {
	from := len(p.ids)
	p.ids = q.take(i, n, p.ids)
	for _, id := range p.ids[from:] {
		p.actions = append(p.actions, Action{Reject: id, Reason: Late})
	}
	p.waiting -= n
}
