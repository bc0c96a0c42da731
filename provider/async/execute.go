package async

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/retry"
)

// keepTrying is how long to wait where the dead letters cannot be written.
const keepTrying = 30 * time.Second

// absentPause is how long to wait before a function is looked for again.
const absentPause = 2 * time.Second

// Invoker executes requests. name is a function's full name. An error may tell
// its HTTP status by a method HTTPStatus() int; 404 means that there is no such
// function. It is called by many goroutines at once.
type Invoker interface {
	Invoke(ctx context.Context, name string, r *frame.Request) (*frame.Response, error)
}

// Functions knows the functions that are deployed, by full name.
type Functions interface {
	// Annotations returns a function's annotations, false if there is no such
	// function.
	Annotations(name string) (map[string]string, bool)
}

// Executor deals with messages. It is safe for concurrent use.
type Executor struct {
	Invoker   Invoker
	Functions Functions
	Poster    *Poster
	// Posting is how often and when a callback is tried.
	Posting retry.Settings
	Dead    *DeadLetters
	Metrics *Metrics
	// Draining is closed when no callback is to be waited for any more.
	Draining <-chan struct{}
	// Patience is for how long after it was stored a request is kept whose function
	// is not known here; 0 where only this provider has functions.
	Patience time.Duration
	// Logger is told of each request that is given up.
	Logger zerolog.Logger
}

// job is one message that is being dealt with.
type job struct {
	*Executor
	m *queue.Message
	// name is the function's full name, request nil if the message is none.
	name    string
	request *queue.Request
	started time.Time
}

// outcome is how a try ended.
type outcome struct {
	try    retry.Try
	detail string
	result *CallbackResult
}

// Handle deals with one message; it is a consume.Handler.
func (e *Executor) Handle(ctx context.Context, m *queue.Message) queue.Verdict {
	j := &job{Executor: e, m: m, name: queue.FromSubjectKey(m.Key), started: time.Now()}
	if m.Deliveries > 1 {
		e.Metrics.Redelivered()
	}
	if m.Deliveries > retry.Lost && j.settings().Hopeless(m.Deliveries) {
		return j.bury(ctx, retry.Crashed, outcome{detail: fmt.Sprintf("it was handed out %d times", m.Deliveries)})
	}
	o := j.execute(ctx)
	if ctx.Err() != nil {
		return queue.Verdict{Keep: true}
	}
	if o.try.Absent && time.Since(m.Stored) < e.Patience {
		return queue.Verdict{Keep: true, Delay: absentPause}
	}
	action := j.settings().After(time.Now(), o.try)
	if action.Kind == retry.Again {
		e.Metrics.Retried()
		return queue.Verdict{Keep: true, Delay: time.Until(action.At)}
	}
	if o.result != nil && j.request.CallbackURL != nil {
		m.Executed(len(o.result.Body))
		if verdict, delivered := j.deliver(ctx, o); !delivered {
			return verdict
		}
	}
	if action.Kind == retry.Dead {
		return j.bury(ctx, action.Reason, o)
	}
	return queue.Verdict{}
}

// settings are the function's, or the default ones where it has none.
func (j *job) settings() retry.Settings {
	annotations, _ := j.Functions.Annotations(j.name)
	// Those that cannot be read are refused at deploy.
	settings, _ := retry.Parse(annotations)
	return settings
}

// execute has the request executed.
func (j *job) execute(ctx context.Context) outcome {
	o := outcome{try: retry.Try{Number: j.m.Deliveries}}
	request, err := queue.DecodeRequest(j.m.Data)
	if err != nil {
		o.try.Malformed, o.detail = true, err.Error()
		return o
	}
	if request.Name != j.name {
		// It lies under another function's subject.
		o.try.Malformed, o.detail = true, fmt.Sprintf("it is for %s and was queued for %s", request.Name, j.name)
		return o
	}
	j.request = request
	result := &CallbackResult{Function: request.Function, CallID: request.CallID(), StartTime: request.Header.Get(queue.StartTimeHeader)}
	response, err := j.Invoker.Invoke(ctx, j.name, request.Frame())
	if err != nil {
		o.try.Status = statusOf(err)
		o.try.Absent = o.try.Status == http.StatusNotFound
		o.detail = err.Error()
		response = failure(o.try.Status, err)
	} else {
		o.try.Status = response.Status
		o.detail = fmt.Sprintf("the function answered %d", response.Status)
	}
	result.Status, result.Header, result.Body = response.Status, response.Header, response.Body
	result.Duration = time.Since(j.started)
	o.result = result
	return o
}

// statusOf is an error's HTTP status, 0 if it has none.
func statusOf(err error) int {
	var known interface{ HTTPStatus() int }
	if errors.As(err, &known) {
		return known.HTTPStatus()
	}
	return 0
}

// failure is what a callback is told of an error.
func failure(status int, err error) *frame.Response {
	if status == 0 {
		status = http.StatusBadGateway
	}
	return &frame.Response{Status: status, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, Body: []byte(err.Error() + "\n")}
}

// deliver posts a result to the callback URL, again and again if need be. If it
// was not delivered, the verdict says what becomes of the message.
func (j *job) deliver(ctx context.Context, o outcome) (_ queue.Verdict, delivered bool) {
	for number := 1; ; number++ {
		status, err := j.Poster.Post(ctx, j.request.CallbackURL, o.result)
		if ctx.Err() != nil {
			return queue.Verdict{Keep: true}, false
		}
		var refused *CallbackRefusedError
		post := retry.Post{Number: number, Status: status, Refused: errors.As(err, &refused)}
		j.Metrics.Called(status)
		action := j.Posting.AfterPost(time.Now(), post)
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
			// A later provider executes it again.
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

// bury puts the message among the dead letters. If that fails it stays in the
// queue.
func (j *job) bury(ctx context.Context, reason string, o outcome) queue.Verdict {
	l := DeadLetter{Function: j.name, Reason: reason, Detail: o.detail, Attempts: j.m.Deliveries, Status: o.try.Status, Queued: j.m.Stored}
	if j.request != nil {
		l.CallID, l.Callback = j.request.CallID(), queue.Redacted(j.request.CallbackURL)
	}
	// A message that is buried twice, because the provider was killed before
	// it was acknowledged, has the same id.
	id := fmt.Sprintf("dead-%d-%d", j.m.Sequence, j.m.Stored.UnixNano())
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := j.Dead.Put(ctx, id, j.m.Key, l, j.m.Data); err != nil {
		j.Logger.Error().Err(err).Str("function", j.name).Msg("a request that failed cannot be put among the dead letters and stays in the queue; purge or replay some: faas-infer async purge, faas-infer async replay")
		return queue.Verdict{Keep: true, Delay: keepTrying}
	}
	j.Metrics.Dead(reason)
	j.Logger.Warn().Str("function", j.name).Str("reason", reason).Int("attempts", l.Attempts).Str("detail", o.detail).Msg("a queued request was given up; see faas-infer async dead")
	return queue.Verdict{}
}
