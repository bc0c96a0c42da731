package dispatch

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
)

const (
	// lookAgain is the pause between two looks at a batch while its instance is being asked
	// for its health.
	lookAgain = 25 * time.Millisecond
	// minGrace and maxGrace bound grace.
	minGrace = 20 * time.Millisecond
	maxGrace = 500 * time.Millisecond
	// MaxLateness is the time after its objective at which a request is refused in any case.
	// A client behind the gateway then has its answer within a second after the objective:
	// the rest is for the way through the gateway.
	MaxLateness = 750 * time.Millisecond
)

// Longest is the longest time from a request's arrival to its answer: MaxLateness after the
// objective, or coldWait after it if the request found no ready instance and that is more.
// Everything that the request waits for counts together.
func Longest(objective, coldWait time.Duration) time.Duration {
	return objective + max(MaxLateness, coldWait)
}

// grace is the time after the objective in which a late answer is still useful: as long as
// the objective itself, within bounds.
func grace(slo time.Duration) time.Duration {
	return min(max(slo, minGrace), maxGrace)
}

// The reasons to give a batch to other instances without losing its own.
var (
	// errSuspended: the instance answers no health question.
	errSuspended = errors.New("the instance does not answer")
	// errStuck: the instance has not taken or read the batch, or not written its answers, while
	// these were still useful.
	errStuck = errors.New("the instance did not read a batch, or write its answers, in time")
)

// flight is the way of one batch from its formation to the last answer. One goroutine at a
// time has it: that of the leading request, or its own after that request has its answer.
type flight struct {
	d *Dispatcher
	*batch
	// rest are the members without an answer; an entry is nil if that member has been
	// refused. x carries the first part of them.
	rest []*call
	part int
	// landing are the members whose answers are being handed out.
	landing []*call
	// x is the current exchange, nil between two.
	x *exchange
	// suspectAt is when the instance is suspected next. asked is the time of the open
	// health question, zero if there is none; lived counts the answers to them.
	suspectAt, asked time.Time
	lived            int
	// mine is the leading call's signal.
	mine signal
}

// flight returns the way of a batch that has not been sent.
func (d *Dispatcher) flight(b *batch) *flight { return &flight{d: d, batch: b, rest: b.calls} }

// lead sends the batch, hands out the answers and returns own's signal. After a panic the
// members get an error and the instance is lost.
func (f *flight) lead(own *call) (mine signal) {
	defer func() {
		if p := recover(); p != nil {
			mine = f.failed(own, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if f.prune(own, time.Now()); len(f.calls) == 0 {
		f.d.done(f.batch, 0, Executed{})
		return f.mine
	}
	for _, c := range f.calls {
		c.queued(f.d.options.Recorder, max(0, f.sent.Sub(c.arrived)))
	}
	partition(f.calls)
	f.rest = f.calls
	return f.run(own)
}

// prune answers the members of the batch that are late even if it is quick, and the way back is, and keeps the
// others: on a busy machine the leader may begin long after the policy decided.
func (f *flight) prune(own *call, now time.Time) {
	kept := f.calls[:0]
	for _, c := range f.calls {
		if !now.Add(f.least).After(c.deadline.Add(c.travel / 2)) {
			kept = append(kept, c)
			continue
		}
		f.answer(c, own, signal{err: f.d.refuse(c)})
	}
	f.calls = kept
}

// resume continues a flight whose leader has its answer.
func (f *flight) resume() {
	defer func() {
		if p := recover(); p != nil {
			f.failed(nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	f.run(nil)
}

// run sends the rest of the batch. It returns early if own has its answer or is refused; a
// goroutine then continues.
func (f *flight) run(own *call) signal {
	for len(f.rest) > 0 {
		if own != nil && f.mine.answers() { // Own does not wait for the others.
			return f.handOver()
		}
		left, err := f.exchange(own)
		if left {
			return f.handOver()
		}
		if err == nil {
			err = f.land(own)
		}
		if failure, harmless := harmless(err); harmless {
			f.fall(own, failure)
			continue
		}
		if err != nil {
			return f.elsewhere(own, err)
		}
	}
	return f.mine
}

// handOver gives the flight to a goroutine of its own, and returns own's signal.
func (f *flight) handOver() signal {
	mine := f.mine
	go f.resume() // f is the goroutine's from here.
	return mine
}

// exchange sends the next part of the batch and returns when its answer begins. left says
// that own was refused before that.
func (f *flight) exchange(own *call) (left bool, err error) {
	if f.x == nil {
		part := cut(f.rest)
		f.part = len(part)
		now := time.Now()
		within, until := make([]time.Duration, len(part)), now.Add(connectTimeout)
		for i, c := range part {
			within[i] = max(c.deadline.Sub(now), time.Microsecond)
			if useless := c.due().Add(grace(f.slo)); !f.slow && useless.Before(until) {
				until = useless
			}
		}
		if f.x, err = f.link.begin(part, within, until, f.once); err != nil {
			f.x = nil
			return false, err
		}
		f.x.last(f.predicted)
		f.x.writeBy = f.firstUseless(f.rest)
		f.suspectAt, f.asked, f.lived = f.x.began.Add(f.overdue), time.Time{}, 0
	}
	for {
		begins, err := f.x.await(f.next())
		if err != nil {
			f.x.Close()
		}
		if begins || err != nil {
			return false, err
		}
		if left, err = f.look(time.Now(), own); left || err != nil {
			return left, err
		}
	}
}

// next is the time of the next look if the answer has not begun by then.
func (f *flight) next() time.Time {
	if next := f.firstUseless(f.rest); next.Before(f.suspectAt) {
		return next
	}
	return f.suspectAt
}

// firstUseless is the first time from which the answer of one of these members is no longer
// useful, at most the exchange's end.
func (f *flight) firstUseless(members []*call) time.Time {
	first := f.x.end
	for _, c := range members {
		if c == nil {
			continue
		}
		if useless := f.useless(c); useless.Before(first) {
			first = useless
		}
	}
	return first
}

// useless is the time from which a member's answer is no longer useful: the objective and
// some grace, or later if the instance usually takes that long, but at most [Longest] after
// the arrival. There is no such time on an instance that is too slow for the objective.
func (f *flight) useless(c *call) time.Time {
	if f.slow {
		return f.x.end
	}
	useless := c.due().Add(grace(f.slo))
	if usual := f.x.began.Add(f.overdue); usual.After(useless) {
		useless = usual
	}
	coldWait := time.Duration(0)
	if c.waitsForStart() {
		coldWait = f.d.options.ColdWait
	}
	if latest := c.arrived.Add(Longest(c.slo, coldWait)); latest.Before(useless) {
		return latest
	}
	return useless
}

// due is when the call's answer must be with the client.
func (c *call) due() time.Time { return c.deadline.Add(c.travel) }

// look refuses the members whose answer is no longer useful, and suspects the instance if
// the batch is overdue. left says that own was refused.
func (f *flight) look(now time.Time, own *call) (left bool, err error) {
	if !now.Before(f.x.end) {
		f.x.Close()
		return false, fmt.Errorf("no answer within %v", f.x.end.Sub(f.x.began))
	}
	for i, c := range f.rest {
		if c == nil || now.Before(f.useless(c)) {
			continue
		}
		if i < f.part && !f.x.sent() { // The callers' bodies are still needed.
			f.x.Close()
			return false, errStuck
		}
		f.rest[i] = nil
		left = left || c == own
		if now.Sub(f.x.began) > c.objective && !c.excused() {
			f.d.slow.Add(1)
		}
		f.answer(c, own, signal{err: f.d.refuse(c)})
	}
	if !now.Before(f.suspectAt) {
		err = f.suspect(now)
	}
	return left && err == nil, err
}

// suspect asks for the instance's health, or acts on the answer. If there is none, the
// batch goes to other instances, unless its members must not run twice.
func (f *flight) suspect(now time.Time) error {
	switch f.d.suspect(f.instance, f.asked) {
	case suspended:
		if !f.once || !f.x.sent() {
			f.x.Close()
			return errSuspended
		}
		f.suspectAt = now.Add(lookAgain)
	case asking:
		f.suspectAt = now.Add(lookAgain)
		if f.asked.IsZero() {
			f.asked = now
		}
	case living:
		// It is slow. The pause before the next question doubles.
		f.lived++
		f.asked, f.suspectAt = time.Time{}, now.Add(f.overdue<<min(f.lived, 10))
	}
	return nil
}

// land reads the answers, which have begun to come, and hands them out. The instance may stop
// in the middle of them.
func (f *flight) land(own *call) error {
	until := f.firstUseless(f.rest[:f.part])
	if soon := time.Now().Add(minGrace); until.Before(soon) {
		until = soon
	}
	responses, took, err := f.x.finish(until, &takers{f.rest[:f.part], f.x.end.Sub(f.x.began)})
	if errors.Is(err, os.ErrDeadlineExceeded) && until.Before(f.x.end) {
		return errStuck
	}
	if err != nil {
		return err
	}
	began := f.x.began
	part := f.take()
	traced := f.trace(part, began, took)
	total := time.Since(f.sent)
	if len(f.rest) == 0 {
		// Free the instance first: its next batch must not wait until these answers
		// are handed out.
		f.outcome, f.answered = outcomeOf(responses), true
		f.d.done(f.batch, total, f.executed(responses, took))
	}
	f.record(len(part), took.time, traced)
	for i, c := range part {
		responses[i].Instance, responses[i].Variant, responses[i].Revision = string(f.instance), f.variant, f.revision
		responses[i].Used = took.time / time.Duration(len(part))
		f.answer(c, own, signal{response: &responses[i], took: took.time})
	}
	return nil
}

// trace notes the execution in the sampled requests of a part, before they have their answers. It returns the first
// one's trace, nil if none is sampled.
func (b *batch) trace(part []*call, began time.Time, took taken) (first *frame.Trace) {
	var x *frame.Execution
	for _, c := range part {
		if c == nil || c.request.Trace == nil {
			continue
		}
		if x == nil {
			x = &frame.Execution{
				Began: began, Ended: time.Now(), Engine: took.engine, Waited: took.waited, Size: len(part),
				Instance: string(b.instance), Variant: b.variant, Revision: b.revision,
			}
		}
		t := c.request.Trace
		x.Members = append(x.Members, t)
		t.Sent, t.Batch = b.sent, x
		if t.Cold {
			t.Up = b.upSince
		}
	}
	if x != nil {
		first = x.Members[0]
	}
	return first
}

// fall answers the members of the current part with an error that is not their instance's
// fault.
func (f *flight) fall(own *call, failure error) {
	if f.x != nil {
		f.x.Close()
	} else {
		f.part = len(cut(f.rest))
	}
	part := f.take()
	if len(f.rest) == 0 {
		f.d.done(f.batch, 0, Executed{})
	}
	for _, c := range part {
		f.answer(c, own, signal{err: failure})
	}
}

// elsewhere gives the unanswered members to other instances after the exchange failed. The
// instance is lost, unless it only does not answer. It returns own's signal.
func (f *flight) elsewhere(own *call, cause error) signal {
	var answered bool
	f.d.delegate(f.d.locked(func(now time.Time) {
		switch m, ok := f.d.instances[f.instance]; {
		case errors.Is(cause, errSuspended):
		case !errors.Is(cause, errStuck):
			f.d.lose(now, f.instance, cause)
		case ok && m.up: // The policy does not know that its batch is gone.
			healthDriver{f.d}.doubt(now, m, true)
		}
		f.d.release(f.instance, now)
		// An instance executes nothing of a part before it has read all of it.
		sent := 0
		if f.x != nil && f.x.sent() {
			sent = f.part
		}
		answered = f.d.again(now, f.rest[:sent], own, false, f.once)
		answered = f.d.again(now, f.rest[sent:], own, true, f.once) && answered
	}), nil)
	f.x = nil // It has what was not sent of the bodies.
	if answered {
		return f.mine
	}
	return f.d.wait(own)
}

// record records n executed requests as batches of at most the instance's limit. t is the trace of one of them.
func (f *flight) record(n int, exec time.Duration, t *frame.Trace) {
	for rest := n; rest > 0; rest -= f.limit {
		size := min(rest, f.limit)
		f.d.options.Recorder.ObserveBatch(size, exec*time.Duration(size)/time.Duration(n), t)
	}
}

// take removes the current part from the rest.
func (f *flight) take() (part []*call) {
	f.landing = f.rest[:f.part]
	part, f.rest = f.landing, slices.DeleteFunc(f.rest[f.part:], func(c *call) bool { return c == nil })
	f.x, f.part = nil, 0
	return part
}

// answer gives a member its signal unless it has been refused. It keeps own's.
func (f *flight) answer(c, own *call, s signal) {
	switch {
	case c == nil:
	case c == own:
		c.request, f.mine = nil, s
	default:
		c.answer(s)
	}
}

// failed answers all members without an answer after a panic. The instance is lost, since
// nobody knows what it still executes.
func (f *flight) failed(own *call, cause error) signal {
	if f.x != nil {
		f.x.Close()
	}
	if !f.mine.answers() {
		f.mine = signal{err: ErrInternal}
	}
	for _, c := range slices.Concat(f.landing, f.rest) {
		if c != nil && c != own {
			select {
			case c.signal <- signal{err: ErrInternal}:
			default: // It has its answer.
			}
		}
	}
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	f.d.lose(time.Now(), f.instance, cause)
	f.d.release(f.instance, time.Now())
	return f.mine
}
