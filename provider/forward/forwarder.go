// Package forward carries the requests of ordinary functions to their instances,
// one to one: each is sent as it comes to the instance with the least in flight,
// and its answer goes back as it comes. One [Forwarder] serves one function;
// functions share no lock, and one without requests has no goroutine.
//
// # Exactly once
//
// A request is sent to another instance only if the first has certainly not had
// it: no connection could be made, or the watchdog itself refused it for having
// too many. (Requests of methods that HTTP calls idempotent are also sent again
// where a kept connection turns out to be closed.) An instance that goes away
// in the middle of anything else is a 502.
//
// # No instance
//
// A request that finds no ready instance wakes the controller and waits, for
// ColdWait at most, then it is answered 503 with the reason.
//
// # Slow bodies
//
// A body is not collected but streams, and an upload, or a dialogue in one
// request, may last as long as it likes: BodyIdle bounds the time in which
// nothing of it comes, and nothing of an answer either, while the instance could
// take more. Then the client gets 408, or, if it has part of an answer, is cut
// off and counted as 499. One byte a second goes on for as long as the function
// lets it: its read_timeout and exec_timeout bound the whole, as everywhere in
// OpenFaaS, and only its author knows what is too long.
//
// An answer that comes before the end of the body is the answer, even if the
// instance takes no more. The client may send on for a moment, so that it looks
// at the answer, and then its connection is closed.
//
// # Updates
//
// All ready instances are alike, those of the revision before too: until the
// last of them is retired, which begins as soon as a new one is ready, requests
// meet both, as they do during a rolling update of Kubernetes. To prefer the new
// would put all of the load on the first of them, that is just starting.
package forward

import (
	"cmp"
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

var (
	_ provider.Forwarder         = (*Forwarder)(nil)
	_ provider.PatientDispatcher = (*Forwarder)(nil)
)

// Recorder takes a function's measurements. Its methods are on the request's
// way: they must not block.
type Recorder interface {
	// ObserveBatch: a request (size is 1) was on an instance for exec.
	ObserveBatch(size int, exec time.Duration)
	// ObserveQueue: a request waited for d before it was sent.
	ObserveQueue(d time.Duration)
	// AddDrop: a request was answered without being sent to an instance, or
	// its instance was lost.
	AddDrop(reason metrics.Reason)
}

// Options configure a forwarder.
type Options struct {
	// ColdWait is how long a request may wait for a ready instance.
	ColdWait time.Duration
	// BodyIdle is how long a client that has not sent its whole body may send
	// nothing, provider.DefaultBodyTimeout if 0.
	BodyIdle time.Duration
	// QueueLimit bounds the requests that wait; beyond it ErrQueueFull. 0 is
	// no bound.
	QueueLimit int
	// Dial connects to an instance; nil means net.Dialer's.
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	Recorder Recorder
	// OnCold is called, without a lock held, when a request finds no ready
	// instance; it must not block.
	OnCold func()
	// OnLost is called once, in a goroutine of its own, for an instance that
	// takes no connection any more.
	OnLost func(id cluster.InstanceID, cause error)
}

// Forwarder serves one function. Its methods are safe for concurrent use.
type Forwarder struct {
	options  Options
	arrivals atomic.Uint64

	mu    sync.Mutex
	peers map[cluster.InstanceID]*peer
	// ready are the peers that are up, turn whose turn it is among equals.
	ready    []*peer
	turn     int
	waiters  list.List
	cold     uint64
	inFlight int
	problem  problem
	closed   bool
}

// New returns a forwarder without instances.
func New(o Options) *Forwarder {
	if o.OnCold == nil {
		o.OnCold = func() {}
	}
	if o.OnLost == nil {
		o.OnLost = func(cluster.InstanceID, error) {}
	}
	o.BodyIdle = cmp.Or(o.BodyIdle, provider.DefaultBodyTimeout)
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	return &Forwarder{options: o, peers: map[cluster.InstanceID]*peer{}}
}

// drop counts a request that is answered with err, and returns that.
func (f *Forwarder) drop(reason metrics.Reason, err error) error {
	f.options.Recorder.AddDrop(reason)
	return err
}

// Invoke carries one request that is in memory and returns its answer in memory,
// or one of this package's errors, or ctx's if the client left first. It is for
// requests that did not come over HTTP; [Forwarder.Forward] streams.
func (f *Forwarder) Invoke(ctx context.Context, req *frame.Request) (*frame.Response, error) {
	return f.InvokePatiently(ctx, req, 0)
}

// InvokePatiently is Invoke for a request that may wait for an instance for
// longer than ColdWait by as much as patience.
func (f *Forwarder) InvokePatiently(ctx context.Context, req *frame.Request, patience time.Duration) (*frame.Response, error) {
	c := f.begin(ctx, patience)
	defer c.end()
	out, err := request(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(req.Body) > 0 {
		c.body = heldReplay(req.Body)
	}
	resp, err := c.send(out)
	if err != nil {
		return nil, err
	}
	body, err := c.readAnswer(resp)
	if err != nil {
		return nil, err
	}
	return &frame.Response{Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// Forward implements [provider.Forwarder]. Protocols can be switched, as for
// WebSockets. An answer that breaks off after it has begun ends in a panic with
// [http.ErrAbortHandler], which makes the client's break off, too.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request, path string) (code int) {
	c := f.begin(r.Context(), 0)
	defer c.end()
	return c.proxy(w, r, path)
}
