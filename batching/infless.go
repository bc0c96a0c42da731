package batching

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// InFless is INFless' own policy (§3.2): every instance has a queue of one
// batch that fills while the batch before it executes; it is submitted when it
// is full, or when its first request has waited t_slo − t_exec. Requests are
// dealt out to the instances in proportion to their rates r_i, which the
// scaling engine keeps within [r_low, r_up].
//
// Where all queues are full, the paper drops the request (Fig. 6a). Here it
// waits in an overflow queue for as long as its deadline allows, which can only
// raise the policy's throughput.
type InFless struct {
	options   Options
	instances []*inflessInstance
	overflow  queue
	fastest   time.Duration
	actions   []Action
	ids       []RequestID
}

// inflessInstance is an instance with the batch that fills for it.
type inflessInstance struct {
	Instance
	filling queue
	busy    bool
	// credit is what weighted round-robin owes the instance.
	credit float64
}

// NewInFless returns INFless' policy.
func NewInFless(o Options) *InFless { return &InFless{options: o} }

// Add implements [Policy].
func (p *InFless) Add(_ time.Time, r Request) { p.deal(r) }

// deal puts r into the batch of the instance whose turn it is by rate, or into
// the overflow queue if no batch has room.
func (p *InFless) deal(r Request) {
	var chosen *inflessInstance
	var total float64
	for _, in := range p.instances {
		if in.filling.len() >= in.Config.Batch {
			continue
		}
		weight := max(in.Rate, 1e-6)
		in.credit += weight
		total += weight
		if chosen == nil || in.credit > chosen.credit {
			chosen = in
		}
	}
	if chosen == nil {
		p.overflow.add(r)
		return
	}
	chosen.credit -= total
	chosen.filling.add(r)
}

// Cancel implements [Policy].
func (p *InFless) Cancel(_ time.Time, id RequestID) bool {
	if p.overflow.remove(id) {
		return true
	}
	return slices.ContainsFunc(p.instances, func(in *inflessInstance) bool { return in.filling.remove(id) })
}

// Waiting implements [Policy].
func (p *InFless) Waiting() int {
	n := p.overflow.len()
	for _, in := range p.instances {
		n += in.filling.len()
	}
	return n
}

// Up implements [Policy].
func (p *InFless) Up(_ time.Time, in Instance) {
	if limit := p.options.MaxBatch; limit > 0 && in.Config.Batch > limit {
		in.Config.Batch = limit
	}
	if i := p.index(in.ID); i >= 0 {
		p.instances[i].Instance = in
	} else {
		p.instances = append(p.instances, &inflessInstance{Instance: in})
	}
	p.measureFastest()
}

// Down implements [Policy].
func (p *InFless) Down(_ time.Time, id cluster.InstanceID) {
	i := p.index(id)
	if i < 0 {
		return
	}
	left := p.instances[i].filling.drain()
	p.instances = slices.Delete(p.instances, i, i+1)
	p.measureFastest()
	for _, r := range left {
		p.deal(r)
	}
}

// Done implements [Policy].
func (p *InFless) Done(_ time.Time, id cluster.InstanceID) {
	if i := p.index(id); i >= 0 {
		p.instances[i].busy = false
	}
}

// Actions implements [Policy].
func (p *InFless) Actions(now time.Time) []Action {
	p.actions, p.ids = p.actions[:0], p.ids[:0]
	p.expire(now, &p.overflow)
	for {
		p.refill()
		changed := false
		for _, in := range p.instances {
			// A batch that timed out is sent even if the timer came late:
			// its times are predictions on the safe side.
			changed = p.submit(now, in) || changed
			changed = p.expire(now, &in.filling) || changed
		}
		if !changed {
			return p.actions
		}
	}
}

// submit sends in's batch if it is free and the batch is full or has timed out.
func (p *InFless) submit(now time.Time, in *inflessInstance) bool {
	n := in.filling.len()
	if n == 0 || in.busy || n < in.Config.Batch && now.Before(in.timeout()) {
		return false
	}
	first := len(p.ids)
	p.ids = in.filling.take(0, min(n, in.Config.Batch), p.ids)
	in.busy = true
	p.actions = append(p.actions, Action{Instance: in.ID, Dispatch: p.ids[first:len(p.ids):len(p.ids)]})
	return true
}

// timeout is when the first request of in's batch has waited t_slo − t_exec,
// less what a timer may be late.
func (in *inflessInstance) timeout() time.Time {
	return in.filling.at(0).Deadline.Add(-in.Exec[in.Config.Batch-1] - timerSlack)
}

// refill deals what overflowed out again, as far as batches have room.
func (p *InFless) refill() {
	for p.overflow.len() > 0 && slices.ContainsFunc(p.instances, func(in *inflessInstance) bool {
		return in.filling.len() < in.Config.Batch
	}) {
		r := *p.overflow.at(0)
		p.overflow.head++
		p.deal(r)
	}
}

// Next implements [Policy].
func (p *InFless) Next() (at time.Time, ok bool) {
	earlier := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if p.overflow.len() > 0 {
		earlier(p.overflow.at(0).Deadline.Add(-p.fastest + 1))
	}
	for _, in := range p.instances {
		if in.filling.len() == 0 {
			continue
		}
		earlier(in.filling.at(0).Deadline.Add(-p.fastest + 1))
		if !in.busy {
			earlier(in.timeout())
		}
	}
	return at, ok
}

// expire rejects the requests of q that even a batch of one cannot answer in
// time, and tells whether there were any.
func (p *InFless) expire(now time.Time, q *queue) bool {
	from := len(p.ids)
	p.ids = q.take(0, q.before(now.Add(p.fastest)), p.ids)
	for _, id := range p.ids[from:] {
		p.actions = append(p.actions, Action{Reject: id, Reason: Late})
	}
	return len(p.ids) > from
}

func (p *InFless) index(id cluster.InstanceID) int {
	return slices.IndexFunc(p.instances, func(in *inflessInstance) bool { return in.ID == id })
}

func (p *InFless) measureFastest() {
	p.fastest = 0
	for i, in := range p.instances {
		if i == 0 || in.Exec[0] < p.fastest {
			p.fastest = in.Exec[0]
		}
	}
}
