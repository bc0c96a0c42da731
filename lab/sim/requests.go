package sim

import (
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// The kinds of events that [Requests.Handle] takes; Kinds is the first that is
// free.
const (
	// arrive: the next request comes.
	arrive uint8 = iota
	// done: the instance in slot B answers a batch.
	done
	// wake: the policy's time has come.
	wake
	// Kinds is the first kind that is not of this package.
	Kinds
)

// TrafficOptions say what a function's requests meet.
type TrafficOptions struct {
	// Index is what the function's events carry as A.
	Index int32
	// Policy decides.
	Policy batching.Policy
	// SLO is the objective, ColdWait what is added to the deadline of a request
	// that finds no ready instance.
	SLO, ColdWait time.Duration
	// Overhead is the way to an instance and back.
	Overhead time.Duration
	// QueueLimit bounds the requests that wait; 0 is no bound.
	QueueLimit int
	// Next is when the next request comes.
	Next func() (at time.Duration, ok bool)
	// Spread is σ of the logarithm of execution times, Seed what they are drawn
	// from.
	Spread float64
	// Factor, if not nil, draws in place of that how much longer than the mean an
	// execution takes.
	Factor func(*rand.Rand) float64
	Seed   uint64
	// Window is what is measured. No request comes after it.
	Window Window
	Events *EventQueue
	// OnCold is called when a request finds no ready instance, OnDrained when an
	// instance that went down has answered all that it had.
	OnCold    func()
	OnDrained func(id cluster.InstanceID)
}

// Requests carries one function's requests, one by one.
type Requests struct {
	options TrafficOptions
	spread  spread
	ring    ring
	peers   map[cluster.InstanceID]*peer
	slots   []*peer
	free    []int32
	// ready counts the peers that are up, parked those that could be at once,
	// inFlight the batches under way.
	ready, parked, inFlight int
	waking                  Waking
	// armed is when the policy is asked again, -1 if nobody waits for that.
	armed  time.Duration
	record Record
	total  Counts
}

// NewRequests plans the first request.
func NewRequests(o TrafficOptions) *Requests {
	r := &Requests{options: o, spread: newSpread(o.Spread, o.Seed, uint64(o.Index)), peers: map[cluster.InstanceID]*peer{}, armed: -1}
	r.spread.factor = o.Factor
	r.ring.first, r.ring.next = 1, 1
	r.planArrival(0)
	return r
}

// planArrival plans the next request, if it comes before the end.
func (r *Requests) planArrival(now time.Duration) {
	if at, ok := r.options.Next(); ok && at < r.options.Window.To {
		r.options.Events.Plan(max(at, now), arrive, r.options.Index, 0)
	}
}

// Handle takes one of the function's events.
func (r *Requests) Handle(e Event) {
	switch e.Kind {
	case arrive:
		r.planArrival(e.At)
		r.admit(e.At)
	case done:
		r.finish(e.At, r.slots[e.B])
	case wake:
		if e.At == r.armed {
			r.armed = -1
			r.act(e.At)
		}
	}
}

// admit takes in a request, as provider/dispatch does.
func (r *Requests) admit(now time.Duration) {
	o := &r.options
	cold := r.ready == 0
	r.total.Arrived++
	measured := now >= o.Window.From
	if measured {
		r.record.Arrived++
	}
	if o.QueueLimit > 0 && o.Policy.Waiting() >= o.QueueLimit {
		r.reject(measured)
		return
	}
	deadline := now + o.SLO - batching.Travel(o.SLO)
	if cold {
		deadline += o.ColdWait
		r.waking.Add(1, measured)
		if r.parked == 0 {
			r.waking.Cold(&r.total, &r.record.Counts)
		}
		o.OnCold()
	}
	id := r.ring.add(now, cold)
	o.Policy.Add(TimeAt(now), batching.Request{ID: id, Deadline: TimeAt(deadline)})
	r.act(now)
}

func (r *Requests) reject(measured bool) {
	r.total.Rejected++
	if measured {
		r.record.Rejected++
	}
}

// act carries out what the policy wants.
func (r *Requests) act(now time.Duration) {
	for _, a := range r.options.Policy.Actions(TimeAt(now)) {
		if a.Dispatch != nil {
			r.send(now, r.peers[a.Instance], a.Dispatch)
			continue
		}
		if x, ok := r.ring.take(a.Reject); ok {
			r.reject(x.arrived >= r.options.Window.From)
		}
	}
	r.arm(now)
}

// arm has the policy asked again at its next instant. To ask too early does no
// harm, so what is planned is moved only forward in time.
func (r *Requests) arm(now time.Duration) {
	next, ok := r.options.Policy.Next()
	if !ok {
		return
	}
	at := max(SinceStart(next), now)
	if r.armed >= 0 && at >= r.armed {
		return
	}
	r.armed = at
	r.options.Events.Plan(at, wake, r.options.Index, 0)
}

// send has a peer execute a batch. Its end is known at once, and with it how
// long each of its requests takes.
func (r *Requests) send(now time.Duration, p *peer, ids []batching.RequestID) {
	o := &r.options
	there := o.Overhead / 2
	start, end := p.execute(now+there, len(ids), &r.spread, o.Window, &r.record)
	answered := end + o.Overhead - there
	r.inFlight++
	o.Events.Plan(answered, done, o.Index, p.slot)
	for _, id := range ids {
		x, ok := r.ring.take(id)
		if !ok {
			continue
		}
		latency := answered - x.arrived
		r.total.Served++
		late := latency > o.SLO
		if late {
			r.total.Missed++
		}
		if x.arrived >= o.Window.From {
			p.use.Served++
			if late {
				r.record.Missed++
			}
			r.record.Executed(start-there-x.arrived, end-start, latency, x.cold)
		}
	}
}

// finish is the answer to a batch: the instance is free for another.
func (r *Requests) finish(now time.Duration, p *peer) {
	p.inFlight--
	r.inFlight--
	p.idleSince = now
	r.options.Policy.Done(TimeAt(now), p.ID)
	r.act(now)
	if !p.up && p.inFlight == 0 {
		r.options.OnDrained(p.ID)
	}
}
