// Package forward sends the requests of ordinary functions to their instances. It
// streams each request to the ready instance with the fewest requests in flight, and
// streams the answer back. It forms no batches, and neither starts nor stops instances.
// One [Forwarder] serves one function; functions share no lock, and a function without
// requests has no goroutine. Begin with [Forwarder.Forward], then call.go.
//
// # Exactly once
//
// A request is sent to another instance only if the first has certainly not executed
// it: no connection could be made, or the watchdog itself refused it for having too
// many. (net/http also resends requests with idempotent methods if a kept connection
// turns out to be closed.) If an instance dies during any other request, the answer
// is 502.
//
// # No instance
//
// A request that found no instance, and then only instances that refuse it for having too many,
// waits on: others may be starting. It gets 429 when its wait is over.
//
// A request that finds no ready instance wakes the controller and waits for at most
// ColdWait, less what it has waited for its function before. Then the answer is 503 with the
// reason.
//
// # Slow bodies
//
// A body is streamed, not collected, so an upload or a dialogue within one request may
// take any time. BodyIdle bounds how long neither the body nor the answer may make
// progress while the instance could read more. After that the client gets 408. If it
// has part of an answer already, its connection is closed and the request counts as
// 499. A client may thus send one byte a second for as long as the function allows:
// the function's read_timeout and exec_timeout bound the whole request, as everywhere
// in OpenFaaS. Only its author knows how long is too long. An instance that has not begun to
// answer shortly after exec_timeout keeps nobody waiting: the answer is 504 (limit.go). A request
// from the queue has no client that may leave, so its whole answer is bounded: by exec_timeout, or
// by maxHeldTime without one.
//
// An instance may answer before the end of the body, and read no more. That answer
// counts. The client may keep sending for a moment, so that it reads the answer, and
// then its connection is closed.
//
// # Updates
//
// All instances that are up are equal. During an update the controller tells the forwarder of
// new instances when enough are ready to take over, and lets it drain the earlier ones then.
// So no answer of an earlier revision follows one of a later.
package forward

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/health/probe"
	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

var (
	_ provider.Forwarder         = (*Forwarder)(nil)
	_ provider.PatientDispatcher = (*Forwarder)(nil)
)

// Recorder records a function's measurements. Its methods are called during
// requests, so they must not block.
type Recorder interface {
	// ObserveBatch records a request (size is 1) that was on an instance for exec. t is its trace, nil if it is not
	// sampled.
	ObserveBatch(size int, exec time.Duration, t *frame.Trace)
	// ObserveQueue records a request that waited for d before it was sent, with its trace.
	ObserveQueue(d time.Duration, t *frame.Trace)
	// AddDrop counts a request that was answered without being sent to an instance,
	// or that lost its instance.
	AddDrop(reason metrics.Reason)
}

// Options configure a forwarder.
type Options struct {
	// ColdWait is how long a request may wait for a ready instance.
	ColdWait time.Duration
	// BodyIdle is how long a client may send nothing before the end of its body. 0
	// means provider.DefaultBodyTimeout.
	BodyIdle time.Duration
	// QueueLimit is the maximum number of waiting requests; more get ErrQueueFull. 0
	// means no limit.
	QueueLimit int
	// Dial connects to an instance; the default is net.Dialer's DialContext.
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	Recorder Recorder
	// OnCold is called, without a lock held, when a request finds no ready
	// instance; it must not block.
	OnCold func()
	// OnLost is called once, in its own goroutine, for an instance that no longer
	// accepts connections, or that does not answer for long.
	OnLost func(id cluster.InstanceID, cause error)
	// OnSuspect is called, in order and in a goroutine of its own, when an instance gets no more
	// requests because it does not answer, or fails more than the others do (suspect), and when
	// it gets them again.
	OnSuspect func(id cluster.InstanceID, suspect bool)
}

// Forwarder serves one function. Its methods are safe for concurrent use.
type Forwarder struct {
	options  Options
	arrivals atomic.Uint64
	// execTimeout is that of SetExecTimeout, in ns.
	execTimeout atomic.Int64

	mu        sync.Mutex
	instances map[cluster.InstanceID]*instance
	// ready are the instances that are up; turn rotates among equals.
	ready []*instance
	turn  int
	// freed counts the answers of instances, without refusals, and the instances that came up:
	// after each of them an instance may take one more request.
	freed    uint64
	waiters  list.List
	cold     uint64
	inFlight int
	problem  web.Problem
	closed   bool
	// siblings compares the answers of the instances, notices calls OnSuspect.
	siblings health.Group
	notices  *probe.Notices[notice]
	// ended is closed by Close.
	ended chan struct{}
}

// New returns a forwarder without instances.
func New(o Options) *Forwarder {
	if o.OnCold == nil {
		o.OnCold = func() {}
	}
	if o.OnLost == nil {
		o.OnLost = func(cluster.InstanceID, error) {}
	}
	if o.OnSuspect == nil {
		o.OnSuspect = func(cluster.InstanceID, bool) {}
	}
	o.BodyIdle = cmp.Or(o.BodyIdle, provider.DefaultBodyTimeout)
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return &Forwarder{
		options: o, instances: map[cluster.InstanceID]*instance{}, ended: make(chan struct{}),
		notices: probe.NewNotices(func(n notice) { o.OnSuspect(n.id, n.suspect) }),
	}
}

// drop counts a request that is answered with err, and returns err.
func (f *Forwarder) drop(reason metrics.Reason, err error) error {
	f.options.Recorder.AddDrop(reason)
	return err
}

// Invoke sends one request that is in memory and returns its answer in memory, unless the
// request has a Sink for it. Otherwise it returns one of this package's errors, the Sink's, or
// ctx's error if the client left first. It serves requests
// that did not come over HTTP; [Forwarder.Forward] streams.
func (f *Forwarder) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return f.InvokePatiently(ctx, req, 0)
}

// InvokePatiently is Invoke for a request that may wait for an instance by patience
// longer than ColdWait. Its whole answer is bounded in time (ErrEndless).
func (f *Forwarder) InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, f.options.ColdWait+patience+f.heldTime(), ErrEndless)
	defer cancel()
	response, err := f.invoke(bounded, req, patience)
	if err != nil && errors.Is(context.Cause(bounded), ErrEndless) {
		return nil, f.drop(metrics.Late, ErrEndless)
	}
	return response, err
}

// invoke is InvokePatiently without the bound.
func (f *Forwarder) invoke(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	c := f.begin(ctx, patience-req.Waited, req.Trace)
	defer c.end()
	out, err := request(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(req.Body) > 0 {
		c.body = duplex.HeldReplay(req.Body)
	}
	resp, err := c.send(out)
	if err != nil {
		return nil, err
	}
	var body []byte
	if req.Sink != nil {
		err = c.copyAnswer(req.Sink, resp)
	} else {
		body, err = c.readAnswer(resp)
	}
	if err != nil {
		return nil, err
	}
	return &frame.Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// Forward implements [provider.Forwarder]. It supports protocol switches, as for
// WebSockets. If an answer breaks off after it has begun, Forward panics with
// [http.ErrAbortHandler], which breaks off the client's answer, too.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, path string, waited time.Duration, keep func(n int64) error) (code int) {
	c := f.begin(r.Context(), -waited, frame.TraceOf(r.Context()))
	defer c.end()
	return c.proxy(w, r, path, keep)
}
