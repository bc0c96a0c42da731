package sim

import (
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// The kinds of events that [Requests.Handle] takes.
const (
	// arrive: the next request comes.
	arrive uint8 = iota
	// done: the instance in slot B answers a batch.
	done
	// wake: the policy wants to act.
	wake
	// Kinds is the first kind for other events.
	Kinds
)

// TrafficOptions are the options of [Requests].
type TrafficOptions struct {
	// Index is A of the function's events.
	Index int32
	// Policy forms batches and rejects requests.
	Policy batching.Policy
	// SLO is the objective. ColdWait is added to the deadline of a request that finds no
	// ready instance.
	SLO, ColdWait time.Duration
	// Overhead is the time of the way to an instance and back.
	Overhead time.Duration
	// QueueLimit bounds the requests that wait; 0 is no bound.
	QueueLimit int
	// Next returns the time of the next request.
	Next func() (at time.Duration, ok bool)
	// Spread is σ of the logarithm of execution times.
	Spread float64
	// Factor, if not nil, draws an execution time divided by its mean, instead of
	// Spread.
	Factor func(*rand.Rand) float64
	// Pace, if not nil, multiplies the times of executions that begin at a time.
	Pace func(at time.Duration) float64
	// Learner, if not nil, is told of executions, and Outcome of requests.
	Learner Learner
	Outcome func(Outcome)
	// Seed is the seed of the execution times.
	Seed uint64
	// Window is the measured time. No request comes after it.
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
	// ready is the number of peers that are up, parked that of parked ones, inFlight
	// that of batches in flight.
	ready, parked, inFlight int
	waking                  Waking
	// armed is the time of the planned wake event, -1 if there is none.
	armed  time.Duration
	record Record
	total  Counts
	// outcomes are counted when they are known, which is later than in total.
	outcomes outcomes
	// refusals are the rejected requests that may have been hasty, and refused draws their executions.
	refusals []refusal
	refused  spread
}

// NewRequests returns a Requests without instances and plans the first request.
func NewRequests(o TrafficOptions) *Requests {
	r := &Requests{options: o, spread: newSpread(o.Spread, o.Seed, uint64(o.Index)), peers: map[cluster.InstanceID]*peer{}, armed: -1}
	r.spread.factor, r.spread.pace = o.Factor, o.Pace
	r.outcomes.observe = o.Outcome
	r.refused = newHasty(&r.options)
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

// admit accepts or rejects a request, as provider/dispatch does.
func (r *Requests) admit(now time.Duration) {
	o := &r.options
	cold := r.ready == 0
	r.total.Arrived++
	measured := now >= o.Window.From
	if measured {
		r.record.Arrived++
	}
	if o.QueueLimit > 0 && o.Policy.Waiting() >= o.QueueLimit {
		r.reject(now, now, cold)
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

func (r *Requests) reject(now, arrived time.Duration, cold bool) {
	r.total.Rejected++
	if arrived >= r.options.Window.From {
		r.record.Rejected++
	}
	r.outcomes.add(Outcome{Arrived: arrived, Cold: cold, Refused: true})
	if !cold {
		r.doubt(now, arrived)
	}
}

// act carries out the policy's actions.
func (r *Requests) act(now time.Duration) {
	r.forgive(now)
	for _, a := range r.options.Policy.Actions(TimeAt(now)) {
		if a.Dispatch != nil {
			r.send(now, r.peers[a.Instance], a.Dispatch)
			continue
		}
		if x, ok := r.ring.take(a.Reject); ok {
			r.reject(now, x.arrived, x.cold)
		}
	}
	r.arm(now)
}

// arm plans a wake event at the policy's next instant. A wake event that is too early does
// no harm, so arm only replaces a planned one by an earlier one.
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

// send lets a peer execute a batch. The end is known at once, and with it the latency of
// each request.
func (r *Requests) send(now time.Duration, p *peer, ids []batching.RequestID) {
	o := &r.options
	there := o.Overhead / 2
	r.examine(p, now+there)
	start, end := p.execute(now+there, len(ids), &r.spread, o.Window, &r.record)
	answered := end + o.Overhead - there
	r.inFlight++
	o.Events.Plan(answered, done, o.Index, p.slot)
	learns := o.Learner != nil || o.Outcome != nil
	if learns {
		p.flights = append(p.flights, execution{took: end - start})
	}
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
		if learns {
			flight := &p.flights[len(p.flights)-1]
			flight.members = append(flight.members, Outcome{
				Arrived: x.arrived, Cold: x.cold, InTime: !late, Slow: late && end-start > o.SLO,
			})
		}
		if x.arrived >= o.Window.From {
			p.whole().use.Served++
			if late {
				r.record.Missed++
			}
			r.record.Executed(start-there-x.arrived, end-start, latency, x.cold)
		}
	}
}

// finish handles the answer to a batch: the instance, or a stream of it, is free for another.
func (r *Requests) finish(now time.Duration, p *peer) {
	all := p.whole()
	all.inFlight--
	r.inFlight--
	all.idleSince = now
	if len(p.flights) > 0 {
		r.observe(now, p)
	}
	r.options.Policy.Done(TimeAt(now), p.ID)
	r.act(now)
	if !all.up && all.inFlight == 0 {
		r.options.OnDrained(all.ID)
	}
}

// observe tells of the first batch that the peer has in flight, which is answered now.
func (r *Requests) observe(now time.Duration, p *peer) {
	flight := p.flights[0]
	p.flights = p.flights[1:]
	for _, x := range flight.members {
		r.outcomes.add(x)
	}
	if r.options.Learner != nil && len(flight.members) > 0 {
		r.options.Learner.Executed(TimeAt(now), p.Config, len(flight.members), flight.took)
	}
}
