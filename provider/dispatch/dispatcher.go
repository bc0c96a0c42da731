// Package dispatch drives a batching policy: it takes requests from the invoke
// route, sends whole batches to instances and gives every member its own answer.
// The policy decides which requests form a batch, and when; the dispatcher neither
// starts nor stops instances. One [Dispatcher] serves one function, or those of one
// pool; other functions share no lock. Begin with [Dispatcher.InvokePatiently], then batch.go.
//
// The dispatcher has no goroutine of its own while its instances answer. A batch is formed
// in the goroutine of an arrival, a finished batch or a timer. That goroutine leads the
// batch if its own request is in it; otherwise it wakes a member of the batch to lead. At
// light load a request thus goes to its instance and back without a change of goroutine.
package dispatch

import (
	"cmp"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/health/probe"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Recorder records a function's measurements. Its methods are called during
// requests, so they must not block.
type Recorder interface {
	// ObserveBatch records a batch of size requests that took exec. t is the trace of one of them, nil if none
	// is sampled.
	ObserveBatch(size int, exec time.Duration, t *frame.Trace)
	// ObserveQueue records a request that waited for d before its batch was sent. t is its trace, nil if it is not
	// sampled.
	ObserveQueue(d time.Duration, t *frame.Trace)
	// AddDrop counts a request that was answered without being executed.
	AddDrop(reason metrics.Reason)
}

// Options configure a dispatcher.
type Options struct {
	// Policy forms the batches. The dispatcher calls it under its lock.
	Policy batching.Policy
	// SLO is the function's latency objective.
	SLO time.Duration
	// ColdWait is added to the deadline of a request that finds no ready
	// instance that serves its class.
	ColdWait time.Duration
	// QueueLimit is the maximum number of waiting requests; more get ErrQueueFull. 0
	// means no limit.
	QueueLimit int
	// ExchangeTimeout bounds the time from sending a batch to its answer; 0 means
	// 10 s. The dispatcher raises it to 20 times the predicted time of the instance's
	// full batch. An instance that takes longer counts as lost.
	ExchangeTimeout time.Duration
	// Dial connects to an instance; the default is net.Dialer's DialContext.
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	Recorder Recorder
	// OnCold is called, without a lock held, when a request finds no ready
	// instance that serves its class; it must not block.
	OnCold func()
	// OnLost is called once, in its own goroutine, for an instance that broke off an
	// exchange or stopped answering.
	OnLost func(id cluster.InstanceID, err error)
	// OnSuspect is called, in order and in a goroutine of its own, when an instance is taken out of service because it
	// does not answer, or fails more than the others do (suspect), and when it serves again.
	OnSuspect func(id cluster.InstanceID, suspect bool)
	// Hold counts n bytes of answers until release is called, or refuses them with a
	// *web.Error; nil for no bound.
	Hold func(n int64) (release func(), err error)
	// Once says that no request may run twice, because its execution has side effects. A
	// request then fails if its instance is lost.
	Once bool
	// Counting counts the tokens of requests' texts, nil for nothing.
	Counting *Counting
}

// Dispatcher serves one function. Its methods are safe for concurrent use.
type Dispatcher struct {
	options Options
	// arrivals counts all requests, prompt those of them that are not patient. prompt is counted
	// after arrivals and read before, so it is never more.
	arrivals, prompt atomic.Uint64
	cold             atomic.Uint64
	// inTime, late and refused are the counters of Stats.
	inTime, late, refused, slow atomic.Uint64

	mu        sync.Mutex
	policy    batching.Policy
	waiting   waiting
	instances map[cluster.InstanceID]*instanceState
	lastID    batching.RequestID
	closed    bool
	problem   web.Problem
	samples   samples
	tardiness tardiness
	pace      batching.Pace
	sizes     sizes
	start     start
	// siblings compares the answers of the instances.
	siblings health.Group
	// probing are the ejected instances whose pause is over. The policy does not know them: the
	// next request goes there alone.
	probing []*instanceState
	// notices calls OnSuspect.
	notices *probe.Notices[notice]
	// up counts the instances that take batches, parked the parked ones.
	up, parked tally
	// stranded: some calls may have an ownDeadline.
	stranded bool
	// ended is closed by Close.
	ended chan struct{}
	// woken counts the requests that found only parked instances, by class. They count
	// as cold if no parked instance comes back for them.
	woken [batching.MaxClasses]uint64
	timer *time.Timer
	// armed is when the timer fires, zero if it is not set.
	armed time.Time
}

// instanceState is an instance as the dispatcher sees it.
type instanceState struct {
	batching.Instance
	link *link
	// health says whether it may take batches. up: it takes them; false while it is parked.
	// served: it has answered a batch. executed counts its batches that were answered without
	// an error.
	health             health.Target
	up, parked, served bool
	// lent: it executes a best-effort request, and the policy does not know it meanwhile.
	lent bool
	// longest is [batching.Instance.Longest]. The policy gets it when an instance has reported rows: it pads.
	longest int64
	// pads: it has reported rows.
	pads bool
	// lived is the time of its last answer to a health question. generation counts how often it
	// went down.
	lived              time.Time
	generation         int
	executed, inFlight int
	// upSince is when it last came up.
	idleSince, upSince time.Time
	// drained is closed when it is down and has no batch in flight.
	drained chan struct{}
}

// call is one request in progress.
type call struct {
	id batching.RequestID
	// ctx ends when the client hangs up.
	ctx context.Context
	// request is nil once the call has its answer: the caller then gives back the memory of
	// the body, and the call's batch may go on for long.
	request *frame.Request
	owner   *frame.Owner
	// ahead and behind are its neighbours in its owner's line ([ownerLine]).
	ahead, behind *call
	class         uint8
	arrived       time.Time
	deadline      time.Time
	// slo is the objective, and the patience of a patient call.
	slo, objective time.Duration
	// travel is the part of slo that deadline reserves for the answer's way back.
	travel  time.Duration
	cold    bool
	retried bool
	// starting: it found a ready instance, but waits for the start of more ([start]).
	starting bool
	// counted: the start is not over before it is answered.
	counted bool
	// orphaned: its instance was lost or retired while no other was ready, or it waited before it came
	// here ([frame.Request.Waited]).
	orphaned bool
	// ownDeadline is the deadline that it had before it was stranded, zero if it is not.
	ownDeadline time.Time
	// begun is when it got the first part of its answer, zero if it has none.
	begun time.Time
	// beyond: it asks for more than capacity is planned for. patient: it may wait for longer than its
	// objective.
	beyond, patient bool
	// look is what is seen of its body, elements the number of elements of its rows by that, 0 if unknown.
	look     look
	elements int64
	// unseen is how many rows others have, where nothing is seen of them.
	unseen int
	// signal carries the answer, or before that a batch to lead.
	signal chan signal
}

type signal struct {
	response *frame.Response
	err      error
	lead     *batch
	// took is how long the execution of an answer took.
	took time.Duration
}

// answer gives the call's answer to its goroutine.
func (c *call) answer(s signal) {
	c.request = nil
	c.signal <- s
}

// answers reports whether the signal is an answer.
func (s signal) answers() bool { return s.response != nil || s.err != nil }

// New returns a dispatcher without instances.
func New(o Options) *Dispatcher {
	if o.OnCold == nil {
		o.OnCold = func() {}
	}
	if o.OnLost == nil {
		o.OnLost = func(cluster.InstanceID, error) {}
	}
	if o.OnSuspect == nil {
		o.OnSuspect = func(cluster.InstanceID, bool) {}
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return &Dispatcher{
		options: o, policy: o.Policy, waiting: waiting{calls: map[batching.RequestID]*call{}, lines: map[*frame.Owner]*ownerLine{}}, instances: map[cluster.InstanceID]*instanceState{},
		notices: probe.NewNotices(func(n notice) { o.OnSuspect(n.id, n.suspect) }), ended: make(chan struct{}),
		sizes: sizes{counting: o.Counting},
	}
}

// Invoke runs one request and returns its answer, one of this package's errors,
// or ctx's error if the client left first. The caller must not change or reuse the
// request and its body before Invoke returns. The answer's body stays valid.
func (d *Dispatcher) Invoke(ctx context.Context, request *frame.Request) (*frame.Response, error) {
	return d.InvokePatiently(ctx, request, 0)
}

// InvokePatiently is Invoke for a request that may be answered by patience later
// than the function's objective. Requests with earlier deadlines go first.
func (d *Dispatcher) InvokePatiently(ctx context.Context, request *frame.Request, patience time.Duration) (*frame.Response, error) {
	d.arrivals.Add(1)
	if patience == 0 {
		d.prompt.Add(1)
	}
	c := &call{ctx: ctx, request: request, owner: request.Owner, class: request.Class, arrived: time.Now().Add(-request.Waited), slo: patience, patient: patience > 0, orphaned: request.Waited > 0, beyond: request.Beyond, look: d.sizes.lookAt(request), signal: make(chan signal, 1)}
	batches, err := d.admit(c)
	if err != nil {
		return nil, err
	}
	if c.counted {
		defer d.start.unanswered.Add(-1)
	}
	if c.cold {
		d.options.OnCold()
	}
	if own := d.delegate(batches, c); own != nil {
		return d.finish(c, d.flight(own).lead(c))
	}
	return d.finish(c, d.wait(c))
}

// wait returns the call's signal, or its context's error if the client hangs up
// while it is in no batch.
func (d *Dispatcher) wait(c *call) signal {
	select {
	case s := <-c.signal:
		return s
	case <-c.ctx.Done():
	}
	if d.cancel(c) {
		return signal{err: c.ctx.Err()}
	}
	// It is in a batch already, and may have to lead it.
	return <-c.signal
}

// excused reports whether the call found no ready instance for its class, or too few while more
// started, lost its instance, asks for more than capacity is planned for, or may wait. Its lateness
// then says nothing about the capacity of the ready instances for the requests that may not.
func (c *call) excused() bool { return c.waitsForStart() || c.retried || c.beyond || c.patient }

// waitsForStart reports whether the call's deadline includes the cold wait.
func (c *call) waitsForStart() bool { return c.cold || c.starting || c.orphaned }

// admit gives the call to the policy and returns the batches to send.
func (d *Dispatcher) admit(c *call) ([]*batch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting.arrive(c)
	d.sizes.arrive(c)
	if d.closed {
		c.dropped(d.options.Recorder, metrics.Closed)
		return nil, ErrClosed
	}
	c.objective = cmp.Or(c.request.Objective, d.options.SLO)
	c.slo += c.objective
	c.travel = batching.Travel(c.slo)
	c.deadline = c.arrived.Add(c.slo - c.travel)
	now := time.Now() // Not c.arrived: the policy's time must not go back.
	c.cold = d.up.of[c.class] == 0
	c.starting = !c.cold && d.start.covers(c.class, now, d.options.ColdWait)
	if limit := d.options.QueueLimit; limit > 0 && waitingBeside(c, d.policy.Waiting()) >= limit || !makeRoom(d, now, c) {
		return nil, c.crowdOut(d)
	}
	if c.cold {
		parked := d.parked.of[c.class] > 0
		if d.problem.Refuse && !parked {
			c.dropped(d.options.Recorder, metrics.NoInstance)
			return nil, d.problem.Answer(ErrCold)
		}
		if parked {
			d.woken[c.class]++
		} else {
			d.cold.Add(1)
		}
	}
	if t := c.request.Trace; t != nil { // Under the lock: another goroutine may lead its batch.
		t.Queued, t.Cold = c.arrived, c.cold
	}
	if c.cold {
		d.start.begin(c.class, now)
	}
	if c.counted = c.cold || c.starting && !d.start.settled; c.counted {
		d.start.unanswered.Add(1)
	}
	if c.waitsForStart() {
		c.extend(now, d.options.ColdWait, c.orphaned && !c.cold && !c.starting)
	}
	d.lastID++
	c.id = d.lastID
	if len(d.probing) > 0 {
		if b := (healthDriver{d}).probe(now, c); b != nil {
			return []*batch{b}, nil
		}
	}
	d.waiting.add(c)
	d.policy.Add(now, c.asPolicy())
	return d.act(now), nil
}

// extend sets the deadline of a call that finds no ready instance, or that has waited before
// it came here. Both count from its arrival, so the cold wait is in it only once. With a ready
// instance the call gets no more time than a new one, because a policy may let it wait as long
// as its deadline allows.
func (c *call) extend(now time.Time, coldWait time.Duration, ready bool) {
	c.deadline = c.arrived.Add(c.slo - c.travel + coldWait)
	if fresh := now.Add(c.slo - c.travel); ready && fresh.Before(c.deadline) {
		c.deadline = fresh
	}
}

// finish leads the batches that the signals hand to the call, until one brings its
// answer.
func (d *Dispatcher) finish(c *call, s signal) (*frame.Response, error) {
	for s.lead != nil {
		s = d.flight(s.lead).lead(c)
	}
	if s.err != nil {
		return s.response, s.err
	}
	answered := c.begun
	if answered.IsZero() {
		answered = time.Now()
	}
	late, failed := answered.Sub(c.arrived) > c.slo, failing(s.response)
	s.response.Late = late
	switch {
	case c.excused():
	case failed: // More capacity would not help.
	case late:
		d.late.Add(1)
		if s.took > c.objective {
			d.slow.Add(1)
		}
	default:
		d.inTime.Add(1)
	}
	return s.response, nil
}

func (d *Dispatcher) cancel(c *call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting.calls[c.id] != c || !d.policy.Cancel(time.Now(), c.id) {
		return false
	}
	d.waiting.take(c.id)
	c.dropped(d.options.Recorder, metrics.Canceled)
	return true
}

// act carries out the policy's actions: it answers rejected requests and returns
// the batches to send. The lock is held.
func (d *Dispatcher) act(now time.Time) []*batch {
	var batches []*batch
	for _, a := range d.policy.Actions(now) {
		if a.Dispatch == nil {
			d.reject(a.Reject)
			continue
		}
		calls := make([]*call, len(a.Dispatch))
		for i, id := range a.Dispatch {
			calls[i] = d.waiting.take(id)
		}
		batches = append(batches, d.batch(now, receiver(d.instances, a.Instance), a.Instance, calls))
	}
	d.arm(now)
	return batches
}

// batch returns the batch of those calls for a stream of an instance. The lock is held.
func (d *Dispatcher) batch(now time.Time, m *instanceState, stream cluster.InstanceID, calls []*call) *batch {
	b := &batch{instance: m.ID, stream: stream, policy: d.policy, calls: calls, sent: now}
	m.inFlight++
	b.generation, b.upSince, b.variant, b.revision = m.generation, m.upSince, m.Variant, m.Revision
	b.link, b.limit, b.slow, b.once, b.slo = m.link, m.Config.Batch, m.Slow, d.options.Once, d.options.SLO
	b.predict(&m.Instance)
	b.least = d.pace.Quick(b.least)
	b.overdue = d.tardiness.overdue(b.predicted)
	return b
}

// receiver returns the instance to which the policy sends a batch.
func receiver(instances map[cluster.InstanceID]*instanceState, stream cluster.InstanceID) *instanceState {
	if m, ok := instances[stream]; ok {
		return m
	}
	return instances[batching.InstanceOf(stream)]
}

// predicted returns how long an instance with the times exec takes for n requests, in as
// many batches as it needs.
func predicted(exec []time.Duration, n int) time.Duration {
	full, rest := n/len(exec), n%len(exec)
	d := time.Duration(full) * exec[len(exec)-1]
	if rest > 0 {
		d += exec[rest-1]
	}
	return d
}

func (d *Dispatcher) reject(id batching.RequestID) {
	c := d.waiting.take(id)
	err, reason := c.late(), metrics.Late
	switch {
	case c.retried:
		err, reason = ErrInstanceLost, metrics.InstanceLost
	case c.waitsForStart() && d.up.of[c.class] == 0:
		err, reason = d.problem.Answer(ErrCold), metrics.NoInstance
	}
	if !c.excused() {
		d.refused.Add(1)
	}
	c.dropped(d.options.Recorder, reason)
	c.answer(signal{err: err})
}

// arm sets the timer to the policy's next instant. It never moves the timer to a
// later instant: a timer that fires too early does no harm.
func (d *Dispatcher) arm(now time.Time) {
	at, ok := d.policy.Next()
	if !ok || !d.armed.IsZero() && !at.Before(d.armed) {
		return
	}
	d.armed = at
	wait := max(at.Sub(now), 0)
	if d.timer == nil {
		d.timer = time.AfterFunc(wait, d.tick)
		return
	}
	d.timer.Reset(wait)
}

// tick asks the policy for actions when the timer fires.
func (d *Dispatcher) tick() {
	d.delegate(d.locked(func(time.Time) { d.armed = time.Time{} }), nil)
}
