package async

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
	"github.com/faas-infer/faas-infer/provider/web"
)

// buryPause is how long a message waits for another try if its dead letter could not be
// written.
const buryPause = 30 * time.Second

// absentPause is how long a message waits if its function is not known here yet.
const absentPause = 2 * time.Second

// Invoker executes requests. name is a function's full name. An error may have its HTTP
// status in a method HTTPStatus() int; 404 means that there is no such function. Many
// goroutines call Invoke at once.
type Invoker interface {
	Invoke(ctx context.Context, name string, r *frame.Request) (*frame.Response, error)
}

// Functions knows the deployed functions by their full names.
type Functions interface {
	// Annotations returns a function's annotations, and false if there is no such
	// function.
	Annotations(name string) (map[string]string, bool)
}

// Tracer traces requests. *trace.Tracer implements it. Its methods neither block nor lock.
type Tracer interface {
	// Begin returns the trace of a request with this header that begins at a time, nil if it is not sampled. It
	// makes the request's span the parent of what gets the header.
	Begin(h http.Header, at time.Time) *frame.Trace
	// Child returns a trace for a part of another one.
	Child(of *frame.Trace, at time.Time) *frame.Trace
	// End takes a trace that is over.
	End(t *frame.Trace)
}

// Executor executes queued messages. It is safe for concurrent use.
type Executor struct {
	Invoker   Invoker
	Functions Functions
	Poster    *Poster
	// Posting says how often and when a callback is tried.
	Posting retry.Settings
	Dead    *DeadLetters
	// Stored returns the content of a message by its number in the stream.
	Stored  func(ctx context.Context, sequence uint64) ([]byte, error)
	Metrics *Metrics
	// Draining is closed when the provider shuts down. Handle then waits for no other try
	// of a callback, and keeps requests that the Invoker refuses with 503.
	Draining <-chan struct{}
	// Patience is how long after it was stored a request of an unknown function is
	// kept; 0 if only this provider deploys functions.
	Patience time.Duration
	// executing counts the executions that ended with the provider, spool keeps answers.
	executing *executing
	spool     *spool
	// states stores what became of requests, hand knows those in hand, and turns orders them.
	states *states
	hand   *inHand
	turns  *turns
	// Tracer traces executions and callbacks, nil for none.
	Tracer Tracer
	// BestEffort, if not nil, executes the requests instead of Invoker.
	BestEffort *bestEffort
	// Logger logs each request that is given up.
	Logger zerolog.Logger
}

// job is one message in Handle.
type job struct {
	*Executor
	m *queue.Message
	// name is the function's full name. request is nil if the message cannot be decoded.
	name    string
	request *queue.Request
	started time.Time
	// answer keeps the function's answer, nil if nobody gets it.
	answer *answer
	// id is the ID by which clients may ask for the request, "" if nobody may. held is then not nil.
	id   string
	held *held
	// trace is that of this try, nil if it is not sampled.
	trace *frame.Trace
}

// outcome is the result of one try.
type outcome struct {
	try    retry.Try
	detail string
	result *CallbackResult
	// unserved says that the Invoker refused the request with 503, elsewhere that it is for
	// another replica.
	unserved, elsewhere bool
}

// Handle executes one message, posts its result to the callback URL and decides what
// becomes of the message. It is a queue.Handler.
func (e *Executor) Handle(ctx context.Context, m *queue.Message) queue.Verdict {
	j := &job{Executor: e, m: m, name: queue.FromSubjectKey(m.Key), started: time.Now()}
	if !j.awaitStates(ctx) {
		return queue.Verdict{Keep: true}
	}
	executing := j.follow(ctx)
	defer j.unfollow()
	verdict := j.record(ctx, j.handle(executing))
	if j.answer != nil {
		j.answer.end()
	}
	if !verdict.Keep {
		j.noted(e.executing.forget(m))
	}
	return verdict
}

// noted logs why an execution could not be noted.
func (j *job) noted(err error) {
	if err != nil {
		j.Logger.Error().Err(err).Str("function", j.name).Msg("cannot note that a queued request is being executed; if it kills the provider, it is tried again more often")
	}
}

// handle is Handle without what is done at the end.
func (j *job) handle(ctx context.Context) queue.Verdict {
	e, m := j.Executor, j.m
	if m.Deliveries > 1 {
		e.Metrics.Redelivered()
	}
	if m.Deliveries > retry.Lost && j.settings().Hopeless(m.Deliveries) {
		return j.bury(ctx, retry.Crashed, outcome{detail: fmt.Sprintf("it was delivered %d times and never acknowledged", m.Deliveries)})
	}
	o, ok := j.inTurn(ctx)
	if ctx.Err() != nil || !ok {
		return queue.Verdict{Keep: true}
	}
	if o.unserved && over(e.Draining) {
		// The provider that shuts down has refused it. That was not a try.
		return queue.Verdict{Keep: true}
	}
	if o.elsewhere {
		return queue.Verdict{Keep: true}
	}
	if o.try.Absent && time.Since(m.Stored) < e.Patience {
		return queue.Verdict{Keep: true, Delay: absentPause}
	}
	action := j.settings().After(time.Now(), o.try)
	if action.Kind == retry.Again {
		e.Metrics.Retried()
		j.note(func(p *Progress) { p.retry(o, action.At) })
		return queue.Verdict{Keep: true, Delay: time.Until(action.At)}
	}
	j.keepResult(ctx, o)
	if o.result != nil && j.request.CallbackURL != nil {
		m.Executed()
		m.Forget() // A callback may take minutes.
		j.request.Body = nil
		if verdict, delivered := j.deliver(ctx, o, action.Reason); !delivered {
			return verdict
		}
	}
	if action.Kind == retry.Dead {
		return j.bury(ctx, action.Reason, o)
	}
	j.finish("", o) // If it is cancelled, its record says so.
	return queue.Verdict{}
}

// settings returns the function's retry settings, or the defaults if it has none.
func (j *job) settings() retry.Settings {
	annotations, _ := j.Functions.Annotations(j.name)
	// A deployment with unreadable ones has been refused.
	settings, _ := retry.Parse(annotations)
	return settings
}

// execute decodes the request and lets the Invoker execute it.
func (j *job) execute(ctx context.Context) (o outcome) {
	o = outcome{try: retry.Try{Number: j.m.Deliveries, Luck: rand.Float64()}}
	request, err := queue.DecodeRequest(j.m.Data)
	if err != nil {
		o.try.Malformed, o.detail = true, err.Error()
		return o
	}
	if request.Name != j.name {
		// The message has another function's subject.
		o.try.Malformed, o.detail = true, fmt.Sprintf("the request is for %s, but its subject is for %s", request.Name, j.name)
		return o
	}
	j.request = request
	j.identify()
	if j.Tracer != nil {
		j.trace = j.Tracer.Begin(request.Header, j.started)
		defer func() { j.traced(j.trace, frame.Processed, o.try.Status) }()
	}
	result := &CallbackResult{Function: request.Function, CallID: request.CallID(), StartTime: request.Header.Get(queue.StartTimeHeader)}
	if request.CallbackURL != nil || j.keeps() > 0 {
		j.answer = &answer{spool: j.spool, m: j.m, name: j.name, resultOnly: request.CallbackURL == nil, maxResult: j.states.maxBytes()}
	}
	o.try.Deaths = j.executing.deaths(j.m)
	response, err := j.invoke(ctx, o.try.Deaths)
	if err == nil && j.answer != nil { // A model's answer comes as a whole.
		_, err = j.answer.Write(response.Body)
	}
	if err != nil {
		o.try.Status = statusOf(err)
		_, known := j.Functions.Annotations(j.name) // A 404 may also be about the model that the request names.
		o.try.Absent = o.try.Status == http.StatusNotFound && !known
		o.unserved = o.try.Status == http.StatusServiceUnavailable
		o.try.Expired, o.elsewhere = errors.As(err, new(expiredError)), errors.Is(err, errElsewhere)
		var refusal *web.Error
		o.try.Final = errors.As(err, &refusal) && refusal.Final
		o.detail = err.Error()
		response = failure(o.try.Status, err)
		result.Body, result.Size = bytes.NewReader(response.Body), int64(len(response.Body))
	} else {
		o.try.Status, o.try.RetryAfter = response.Status, retryAfter(response, time.Now())
		o.detail = fmt.Sprintf("the function answered %d", response.Status)
		if j.answer != nil {
			result.Body, result.Size = j.answer.body()
		}
	}
	result.Status, result.Header = response.Status, response.Header
	result.Duration = time.Since(j.started)
	o.result = result
	return o
}

// traced ends a trace of the request, nil if it is not sampled.
func (j *job) traced(t *frame.Trace, step frame.Step, status int) {
	if t != nil {
		t.Step, t.Function, t.Method, t.Status, t.Stored, t.Try = step, j.name, j.request.Method, status, j.m.Stored, j.m.Deliveries
		j.Tracer.End(t)
	}
}

// invoke executes the decoded request, unless too many executions of it have ended with the
// provider. One that has deaths waits for others of that kind.
func (j *job) invoke(ctx context.Context, deaths int) (*frame.Response, error) {
	if deaths >= retry.MaxDeaths {
		return nil, web.Refuse(http.StatusInternalServerError, "the provider ended %d times while it executed the request", deaths)
	}
	if deaths > 0 {
		pass, err := j.executing.alone(ctx, j.Draining)
		if err != nil {
			return nil, err
		}
		defer pass()
	}
	if j.BestEffort != nil {
		return j.BestEffort.run(ctx, j)
	}
	return j.run(func(r *frame.Request) (*frame.Response, error) { return j.Invoker.Invoke(ctx, j.name, r) })
}

// run executes the request and notes that it does. Nothing of an answer is kept that nobody is
// called back with, and it is read up to a bound.
func (j *job) run(execute func(*frame.Request) (*frame.Response, error)) (*frame.Response, error) {
	r := j.request.Frame()
	r.Trace = j.trace
	if r.Sink = new(discarded); j.answer != nil {
		r.Sink = j.answer
	}
	j.noted(j.executing.begin(j.m))
	defer func() { j.noted(j.executing.end(j.m)) }()
	j.note(func(p *Progress) { p.State, p.Attempts, p.Started = Running, j.m.Deliveries, time.Now() })
	return execute(r)
}

// statusOf returns an error's HTTP status, 0 if it has none.
func statusOf(err error) int {
	var known interface{ HTTPStatus() int }
	if errors.As(err, &known) {
		return known.HTTPStatus()
	}
	return 0
}

// failure returns the answer that a callback gets for an error.
func failure(status int, err error) *frame.Response {
	if status == 0 {
		status = http.StatusBadGateway
	}
	return &frame.Response{Status: status, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte(web.Conceal(err.Error()) + "\n")}
}

// deliver posts a result to the callback URL until Posting is satisfied or gives up. If
// the result was not delivered, the verdict says what becomes of the message. reason is that of finish.
func (j *job) deliver(ctx context.Context, o outcome, reason string) (_ queue.Verdict, delivered bool) {
	for number := 1; ; number++ {
		var posted *frame.Trace
		if j.trace != nil {
			posted = j.Tracer.Child(j.trace, time.Now())
			o.result.trace = posted.Header()
		}
		status, err := j.Poster.Post(ctx, j.request.CallbackURL, o.result)
		var refused *CallbackRefusedError
		post := retry.Post{Number: number, Status: status, Refused: errors.As(err, &refused), Luck: rand.Float64()}
		action := j.Posting.AfterPost(time.Now(), post)
		if action.Kind == retry.Done {
			j.finish(reason, o) // A client that cancels from now on is told so.
		}
		j.traced(posted, frame.CalledBack, status)
		if ctx.Err() != nil && action.Kind != retry.Done {
			return queue.Verdict{Keep: true}, false
		}
		j.Metrics.Called(status)
		switch action.Kind {
		case retry.Done:
			return queue.Verdict{}, true
		case retry.Dead:
			return j.bury(ctx, action.Reason, j.undelivered(o, post, err)), false
		case retry.Again:
		}
		select {
		case <-time.After(time.Until(action.At)):
		case <-j.Draining:
			// The next provider executes the request again.
			return queue.Verdict{Keep: true}, false
		case <-ctx.Done():
			return queue.Verdict{Keep: true}, false
		}
	}
}

func (j *job) undelivered(o outcome, p retry.Post, err error) outcome {
	if err == nil {
		err = fmt.Errorf("the callback URL answered %d", p.Status)
	}
	o.detail = fmt.Sprintf("the function answered %d, but its answer was not delivered in %d tries: %v", o.result.Status, p.Number, err)
	return o
}

// bury stores the message as a dead letter. If that fails, the message stays in the
// queue for buryPause.
func (j *job) bury(ctx context.Context, reason string, o outcome) queue.Verdict {
	if !j.finish(reason, o) {
		return queue.Verdict{}
	}
	l := DeadLetter{Function: j.name, Reason: reason, Detail: o.detail, Attempts: j.m.Deliveries, Status: o.try.Status, Queued: j.m.Stored, ID: j.id}
	if j.request != nil {
		l.CallID, l.Callback = j.request.CallID(), queue.Redacted(j.request.CallbackURL)
	}
	// If the provider is killed before the acknowledgement, the message is buried again
	// with the same id.
	id := fmt.Sprintf("dead-%d-%d", j.m.Sequence, j.m.Stored.UnixNano())
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, err := j.m.Data, error(nil)
	if data == nil {
		data, err = j.Stored(ctx, j.m.Sequence)
	}
	if err == nil {
		err = j.Dead.Put(ctx, id, j.m.Key, l, data)
	}
	if err != nil {
		j.Logger.Error().Err(err).Str("function", j.name).Msg("a failed request stays in the queue, because its dead letter cannot be stored; purge or replay some: faas-infer async purge, faas-infer async replay")
		j.reopen(o, time.Now().Add(buryPause))
		return queue.Verdict{Keep: true, Delay: buryPause}
	}
	j.Metrics.Dead(reason)
	j.Logger.Warn().Str("function", j.name).Str("reason", reason).Int("attempts", l.Attempts).Str("detail", o.detail).Msg("a queued request was given up; see faas-infer async dead")
	return queue.Verdict{}
}
