package async

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/queue"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Spare executes best-effort requests on what other requests leave. name is a function's full
// name. Its methods are safe for concurrent use.
type Spare interface {
	// Serves reports whether a deployed function may get such requests.
	Serves(name string) bool
	// Owns reports whether this replica of the provider executes those of a function.
	Owns(name string) bool
	// Left returns what the function and its nodes leave. Its error is like Invoker's.
	Left(name string) (spare.State, error)
	// InvokeSpare is Invoke on an instance that no other request needs. It returns
	// spare.ErrOccupied if there is none.
	InvokeSpare(ctx context.Context, name string, r *frame.Request) (*frame.Response, error)
}

// bestEffort executes the best-effort requests of all functions. A worker of its own executes
// those of a function one at a time: the next one waits in hand until [spare.Decide] lets it
// run, however long that takes, so a wait is no try.
type bestEffort struct {
	Spare
	age time.Duration

	mu sync.Mutex
	// running counts the requests that run, by key.
	running map[string]int
}

// errElsewhere says that another replica of the provider executes the request.
var errElsewhere = errors.New("another replica of the provider executes it")

// expiredError is why a request has expired.
type expiredError string

// Error returns the reason.
func (e expiredError) Error() string { return string(e) }

// HTTPStatus returns 504: nobody executed the request in time.
func (expiredError) HTTPStatus() int { return http.StatusGatewayTimeout }

// run executes a request when there is room for it.
func (b *bestEffort) run(ctx context.Context, j *job) (*frame.Response, error) {
	for {
		if !b.Owns(j.name) {
			return nil, errElsewhere
		}
		left, err := b.Left(j.name)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		verdict := spare.Decide(now, j.m.Stored, b.age, left)
		switch verdict.Kind {
		case spare.Expired:
			return nil, expiredError(verdict.Why)
		case spare.Run:
			j.started, verdict.At = now, now.Add(spare.Pause)
			b.count(j.m.Key, 1)
			response, err := j.run(func(r *frame.Request) (*frame.Response, error) { return b.InvokeSpare(ctx, j.name, r) })
			b.count(j.m.Key, -1)
			if !errors.Is(err, spare.ErrOccupied) {
				return response, err
			}
			// It waits again: that was no try.
			j.note(func(p *Progress) { p.State, p.Attempts, p.Started = Queued, j.m.Deliveries-1, time.Time{} })
		case spare.Wait:
		}
		select {
		case <-time.After(time.Until(verdict.At)):
		case <-j.Draining:
			return nil, unavailable(errLeaving)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// count adds n to the requests of a key that run.
func (b *bestEffort) count(key string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[key] += n; b.running[key] == 0 {
		delete(b.running, key)
	}
}

// begun returns a pool's counts of a key without the request that waits for room.
func (b *bestEffort) begun(key string, s queue.PoolStats) queue.PoolStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := max(0, s.Running-b.running[key])
	return queue.PoolStats{Running: s.Running - waiting, Held: s.Held - waiting}
}

// spareStats returns the best-effort requests in hand that do not wait for room, by key.
func (q *Queue) spareStats() map[string]queue.PoolStats {
	q.mu.Lock()
	pool := q.sparePool
	q.mu.Unlock()
	all := map[string]queue.PoolStats{}
	if pool == nil {
		return all
	}
	for key, s := range pool.Stats() {
		all[key] = q.spare.begun(key, s)
	}
	return all
}

// spareInHand is the sum of spareStats.
func (q *Queue) spareInHand() (n int) {
	for _, s := range q.spareStats() {
		n += s.Held
	}
	return n
}

// destination is where a request is stored: a function, and the worker for its class.
type destination struct {
	// name is the function's full name.
	name string
	// bestEffort: the request has the class [spare.BestEffort].
	bestEffort bool
	// due is the request's own deadline, zero if it has none. urgent: that is nearer than the usual one.
	due    time.Time
	urgent bool
	// id is the value of idHeader, "" if nobody may ask for the request.
	id string
}

// header returns the headers of the message in the queue. unique is its id, "" for none: a second
// message with the same one is not stored.
func (d destination) header(unique string) nats.Header {
	h := nats.Header{}
	if unique != "" {
		h.Set(jetstream.MsgIDHeader, unique)
	}
	if d.id != "" {
		h.Set(idHeader, d.id)
	}
	if !d.due.IsZero() {
		h.Set(dueHeader, strconv.FormatInt(d.due.UnixMilli(), 10))
	}
	return h
}

// subject is the subject under which the request is stored.
func (d destination) subject() string {
	prefix := queue.WorkSubjects
	switch {
	case d.bestEffort:
		prefix = queue.BestEffortSubjects
	case d.urgent:
		prefix = queue.UrgentSubjects
	}
	return prefix + queue.SubjectKey(d.name)
}

// keyOf returns the key of a subject, and whether it is one of best-effort requests.
func keyOf(subject string) (key string, bestEffort bool) {
	if key, ok := strings.CutPrefix(subject, queue.BestEffortSubjects); ok {
		return key, true
	}
	return strings.TrimPrefix(strings.TrimPrefix(subject, queue.WorkSubjects), queue.UrgentSubjects), false
}

// route returns the destination of a request of a deployed function with a header.
func (q *Queue) route(name string, header http.Header, now time.Time) (destination, error) {
	best, err := spare.ParseClass(header[spare.Header])
	switch {
	case err != nil:
		return destination{}, web.Refuse(http.StatusBadRequest, "%v", err)
	case best && (q.spare == nil || !q.spare.Serves(name)):
		function, namespace := queue.SplitName(name)
		return destination{}, web.Refuse(http.StatusBadRequest, "the header %s is %q, but function %q in namespace %q has no latency objective (com.openfaas.slo.latency): leave the header out", spare.Header, spare.BestEffort, function, namespace)
	}
	to := destination{name: name, bestEffort: best}
	d, err := parseDuration(header, deadlineHeader, maxDeadline)
	if d > 0 {
		to.due, to.urgent = now.Add(d), d < usualDeadline
	}
	return to, err
}
