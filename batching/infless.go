package batching

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// InFless is INFless' own policy (§3.2). Every instance has a queue of one batch
// that fills while the batch before it executes. The policy submits a batch when it
// is full, or when its first request has waited t_slo − t_exec. It deals requests
// out to the instances in proportion to their rates r_i. The scaling engine keeps
// those within [r_low, r_up].
//
// If all queues are full, the paper drops the request (Fig. 6a). Here it waits in
// an overflow queue for as long as its deadline allows. That can only raise the
// policy's throughput.
type InFless struct {
	options   Options
	clock     clock
	slots     Slots
	instances []inflessInstance
	// turns has the instances whose batches have room, by their turn. turn is that
	// of the last request dealt.
	turns Ranking[float64]
	turn  float64
	// events has the instances with requests, by when they must be looked at.
	events   Ranking[time.Duration]
	overflow queue
	fastest  Fastest
	waiting  int
	actions  []Action
	ids      []RequestID
}

// inflessInstance is an instance with the batch that fills for it.
type inflessInstance struct {
	Instance
	filling queue
	busy    bool
	// turn says when the instance gets its next request, in virtual time: each
	// request moves it on by 1/r_i. While the batch is full, turn is relative to
	// the policy's turn.
	turn float64
}

// NewInFless returns INFless' policy.
func NewInFless(o Options) *InFless { return &InFless{options: o} }

// Add implements [Policy].
func (p *InFless) Add(now time.Time, r Request) {
	p.clock.since(now)
	p.waiting++
	p.deal(waiter{r.ID, p.clock.since(r.Deadline)})
}

// deal puts w into the batch of the instance whose turn it is by rate, or into
// the overflow queue if no batch has room.
func (p *InFless) deal(w waiter) {
	if p.turns.Len() == 0 {
		p.overflow.add(w)
		return
	}
	slot, turn := p.turns.First()
	in := &p.instances[slot]
	in.filling.add(w)
	in.turn = turn + in.step()
	p.turn = turn
	if in.filling.len() < in.Config.Batch {
		p.turns.Set(slot, in.turn)
	} else {
		p.turns.Remove(slot)
		in.turn -= p.turn
	}
	p.plan(slot)
	if p.turn > maxTurn {
		p.rebase()
	}
}

// step is 1/r_i.
func (in *Instance) step() float64 { return 1 / max(in.Rate, 1e-6) }

// maxTurn is the turn from which turns begin at 0 again, so small steps are not
// lost in rounding: at 10⁶ s a float64 still resolves 10⁻¹⁰ s.
const maxTurn = 1e6

// rebase makes the present turn 0.
func (p *InFless) rebase() {
	p.turns.Move(func(slot int, turn float64) float64 {
		p.instances[slot].turn = turn - p.turn
		return turn - p.turn
	})
	p.turn = 0
}

// open adds the instance to turns if its batch has room, and removes it otherwise.
func (p *InFless) open(slot int) {
	in := &p.instances[slot]
	room, was := in.filling.len() < in.Config.Batch, p.turns.Has(slot)
	switch {
	case room && !was:
		in.turn += p.turn
		p.turns.Set(slot, in.turn)
	case !room && was:
		p.turns.Remove(slot)
		in.turn -= p.turn
	}
}

// Cancel implements [Policy].
func (p *InFless) Cancel(_ time.Time, id RequestID) bool {
	if p.overflow.remove(id) {
		p.waiting--
		return true
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

// Waiting implements [Policy].
func (p *InFless) Waiting() int { return p.waiting }

// Up implements [Policy].
func (p *InFless) Up(_ time.Time, in Instance) {
	if limit := p.options.MaxBatch; limit > 0 && in.Config.Batch > limit {
		in.Config.Batch = limit
	}
	slot, known := p.slots.Give(in.ID)
	if slot == len(p.instances) {
		p.instances = append(p.instances, inflessInstance{})
	}
	m := &p.instances[slot]
	old := time.Duration(-1)
	if known {
		old = m.Exec[0]
		// The time left until its turn scales with the rate.
		if p.turns.Has(slot) {
			m.turn = p.turn + (m.turn-p.turn)*in.step()/m.step()
			p.turns.Set(slot, m.turn)
		} else {
			m.turn *= in.step() / m.step()
		}
	} else {
		m.turn = in.step() / 2
	}
	m.Instance = in
	p.open(slot)
	p.plan(slot)
	p.updateFastest(old, in.Exec[0])
}

// Down implements [Policy].
func (p *InFless) Down(_ time.Time, id cluster.InstanceID) {
	slot, known := p.slots.Find(id)
	if !known {
		return
	}
	m := &p.instances[slot]
	left, exec := m.filling.drain(), m.Exec[0]
	p.slots.Drop(id)
	p.turns.Remove(slot)
	p.events.Remove(slot)
	*m = inflessInstance{filling: m.filling}
	p.updateFastest(exec, -1)
	for _, w := range left {
		p.deal(w)
	}
}

// updateFastest replaces an instance's time for one request. If the shortest time
// of all changes by that, it plans every instance again.
func (p *InFless) updateFastest(old, new time.Duration) {
	if !p.fastest.Change(old, new) {
		return
	}
	for slot := range p.instances {
		p.plan(slot)
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
		p.events.Set(slot, in.filling.at(0).due-p.fastest.Least()+1)
	case n >= in.Config.Batch:
		p.events.Set(slot, -farthest)
	default:
		p.events.Set(slot, in.timeout())
	}
}

// timeout is when the first request of in's batch has waited t_slo − t_exec, less
// timerSlack.
func (in *inflessInstance) timeout() time.Duration {
	return in.filling.at(0).due - in.Exec[in.Config.Batch-1] - timerSlack
}

// Actions implements [Policy].
func (p *InFless) Actions(at time.Time) []Action {
	p.actions, p.ids = p.actions[:0], p.ids[:0]
	now := p.clock.since(at)
	p.expire(now, &p.overflow)
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
		p.expire(now, &in.filling)
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

// refill deals out requests of the overflow queue while batches have room.
func (p *InFless) refill() {
	for p.overflow.len() > 0 && p.turns.Len() > 0 {
		w := *p.overflow.at(0)
		p.overflow.drop(0, 1)
		p.deal(w)
	}
}

// Next implements [Policy].
func (p *InFless) Next() (time.Time, bool) {
	if p.waiting == 0 {
		return time.Time{}, false
	}
	at := farthest
	if p.overflow.len() > 0 {
		at = p.overflow.at(0).due - p.fastest.Least() + 1
	}
	if p.events.Len() > 0 {
		_, due := p.events.First()
		at = min(at, due)
	}
	return p.clock.time(at), true
}

// expire rejects the requests of q that even a batch of one cannot answer in
// time.
func (p *InFless) expire(now time.Duration, q *queue) {
	from, late := len(p.ids), q.before(now+p.fastest.Least())
	p.ids = q.take(0, late, p.ids)
	for _, id := range p.ids[from:] {
		p.actions = append(p.actions, Action{Reject: id, Reason: Late})
	}
	p.waiting -= late
}
