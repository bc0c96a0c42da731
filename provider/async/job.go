package async

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/web"
)

// follow lets clients ask for the request, if they may. The context that it returns ends when one
// cancels the request.
func (j *job) follow(ctx context.Context) context.Context {
	switch id := j.m.Header.Get(idHeader); id {
	case "":
		return ctx
	case byNumber:
		j.id = j.states.broker.ID(j.m.Sequence)
	default: // It was replayed.
		j.id = id
	}
	if j.states.broker.ID(0) == "" { // The server has no room for states.
		j.id = ""
		return ctx
	}
	ctx, j.held = j.hand.begin(ctx, j.m.Sequence, Progress{
		ID: j.id, Function: j.name, State: Queued, Attempts: j.m.Deliveries - 1, Queued: j.m.Stored,
	})
	return ctx
}

// awaitStates waits until it is known whether clients may ask for requests that say so. It returns false if the
// message is given up before.
func (j *job) awaitStates(ctx context.Context) bool {
	for j.m.Header.Get(idHeader) != "" && !j.states.settled() {
		select {
		case <-time.After(troublePause):
		case <-j.Draining:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// unfollow is called when the message is not in hand any more.
func (j *job) unfollow() {
	if j.held != nil {
		j.hand.drop(j.m.Sequence, j.held)
	}
}

// note changes what clients are told of the request.
func (j *job) note(how func(*Progress)) {
	if j.held != nil {
		j.hand.change(j.held, how)
	}
}

// retry says that another try follows at a time.
func (p *Progress) retry(o outcome, at time.Time) {
	p.State, p.Next, p.Status, p.Detail = Retrying, at, o.try.Status, web.Conceal(o.detail)
	p.Ended, p.Reason = time.Time{}, ""
}

// finish decides the request's end: a dead letter for a reason, or a final answer if that is "". It returns
// false if the request is cancelled.
func (j *job) finish(reason string, o outcome) bool {
	if j.held == nil {
		return true
	}
	return j.hand.commit(j.held, func(p *Progress) {
		p.Ended, p.Status, p.Reason, p.Detail = time.Now(), o.try.Status, reason, web.Conceal(o.detail)
		switch {
		case reason != "":
			p.State = Dead
		case o.try.Status >= http.StatusBadRequest:
			p.State = Failed
		default:
			p.State = Done
		}
	})
}

// reopen says that the request has not ended as finish has decided: another try follows at a time.
func (j *job) reopen(o outcome, at time.Time) {
	if j.held != nil {
		j.hand.reopen(j.held, func(p *Progress) { p.retry(o, at) })
	}
}

// record stores what became of the request, before its message leaves the queue. It returns what becomes of
// the message: a cancelled one leaves it. Clients find the request in the store then, and not in hand: one
// that is cancelled while its record is being written gets another record.
func (j *job) record(ctx context.Context, v queue.Verdict) queue.Verdict {
	if j.held == nil {
		return v
	}
	p := j.hand.change(j.held, func(*Progress) {})
	for left := false; !left; p, left = j.hand.leave(j.m.Sequence, j.held, p.State) {
		if p.ended() || p.State == Retrying {
			j.store(ctx, p)
		}
	}
	if p.State == Cancelled {
		j.Metrics.Cancelled()
		return queue.Verdict{}
	}
	return v
}

// store stores what is known of the request.
func (j *job) store(ctx context.Context, p Progress) {
	j.m.Executed()
	r := record{Progress: p}
	if j.m.Header.Get(idHeader) != byNumber {
		r.Sequence = j.m.Sequence
	}
	if err := j.states.put(context.WithoutCancel(ctx), r); err != nil {
		j.Logger.Warn().Err(err).Str("function", j.name).
			Msg("cannot store what became of a queued request; its state stays what was known before")
	}
}

// identify gives a request without X-Call-Id its ID: an earlier version has stored it, and told the client that.
func (j *job) identify() {
	if j.request.CallID() != "" || j.id == "" {
		return
	}
	if j.request.Header == nil {
		j.request.Header = http.Header{}
	}
	j.request.Header.Set(queue.CallIDHeader, j.id)
}

// keeps returns how long the request's result is to be kept, 0 if it is not.
func (j *job) keeps() time.Duration {
	if j.held == nil {
		return 0
	}
	d, _ := parseDuration(j.request.Header, keepHeader, queue.MaxKeep) // An invalid one was refused.
	return d
}

// keepResult stores the result of the last try, if the client has asked for that.
func (j *job) keepResult(ctx context.Context, o outcome) {
	if o.result == nil || j.keeps() == 0 {
		return
	}
	j.m.Executed() // The message itself stays in hand until its record is stored.
	kept := j.states.keep(ctx, j.id, o.result, j.answer, j.keeps())
	j.note(func(p *Progress) { p.Result = kept })
}

// inTurn executes the request when its turn has come. It returns false if that does not come.
func (j *job) inTurn(ctx context.Context) (outcome, bool) {
	if j.BestEffort != nil {
		return j.execute(ctx), true
	}
	ms, _ := strconv.ParseInt(j.m.Header.Get(dueHeader), 10, 64)
	deadline := j.m.Stored.Add(usualDeadline)
	if ms != 0 {
		deadline = time.UnixMilli(ms)
	}
	leave, ok := j.turns.enter(ctx, j.Draining, j.m, deadline)
	if !ok {
		return outcome{}, false
	}
	defer leave()
	j.started = time.Now()
	return j.execute(ctx), true
}

// retryAfter returns how long a function that answers 429 or 503 asks to wait, 0 if it does not ask.
func retryAfter(r *frame.Response, now time.Time) time.Duration {
	if r.Status != http.StatusTooManyRequests && r.Status != http.StatusServiceUnavailable {
		return 0
	}
	text := cmp.Or(r.Header.Get("Retry-After"), "0")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, at.Sub(now))
}
