package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// keepConnections is the maximum number of idle connections to an instance. They
	// stay open for keepIdle after their last request. A watchdog keeps them longer, so
	// it does not close one while a request is being written.
	keepConnections = 64
	keepIdle        = 4 * time.Second
	// dialTimeout bounds connecting to an instance, whose queue of connections may be
	// full.
	dialTimeout = 5 * time.Second
)

// Up adds an instance that listens at network and address, as in net.Dial. Waiting
// requests go there at once. Its answers name the revision. A second Up with the same ID only
// changes the revision.
func (f *Forwarder) Up(id cluster.InstanceID, network, address string, revision uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, known := f.instances[id]; known || f.closed {
		if known {
			p.revision.Store(revision)
		}
		return
	}
	p := &instance{id: id, network: network, address: address, transport: f.transport(network, address)}
	p.revision.Store(revision)
	f.instances[id] = p
	f.raise(p)
}

// transport returns an HTTP transport to one instance.
func (f *Forwarder) transport(network, address string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return f.dial(ctx, network, address)
		},
		// The client gets the function's answer unchanged.
		DisableCompression:     true,
		MaxIdleConnsPerHost:    keepConnections,
		IdleConnTimeout:        keepIdle,
		MaxResponseHeaderBytes: duplex.MaxAnswerHead,
	}
}

// dial connects to an instance. It tries again while a Unix socket's queue is full:
// such a socket returns EAGAIN at once, where TCP would wait.
func (f *Forwarder) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for n := 1; ; n++ {
		conn, err := f.options.Dial(ctx, network, address)
		if err == nil {
			return duplex.Conn(conn), nil
		}
		if !errors.Is(err, syscall.EAGAIN) || !backoff.Wait(ctx, backoff.Pause(n, time.Millisecond, 50*time.Millisecond)) {
			return nil, &dialError{err}
		}
	}
}

// Drain sends an instance nothing new. It returns when the instance has nothing in
// flight, or with ctx's error.
func (f *Forwarder) Drain(ctx context.Context, id cluster.InstanceID) error {
	f.mu.Lock()
	p, ok := f.instances[id]
	if !ok {
		f.mu.Unlock()
		return nil
	}
	f.retire(p)
	if p.drained == nil {
		p.drained = make(chan struct{})
	}
	drained := p.drained
	p.settle()
	f.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Forget removes an instance that has exited, and reports whether it ever answered a
// request.
func (f *Forwarder) Forget(id cluster.InstanceID) (served bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.instances[id]
	if !ok {
		return false
	}
	f.retire(p)
	delete(f.instances, id)
	if p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
	p.transport.CloseIdleConnections()
	return p.served
}

// SetProblem sets why the function has no ready instance: requests that wait in vain
// get this reason. "" clears it. With refuse, requests without a ready instance are
// answered at once, including those that wait already. It has no effect while an
// instance is ready.
func (f *Forwarder) SetProblem(reason string, refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problem = web.NewProblem(reason, refuse)
	if f.problem.Refuse {
		f.refuseAll(metrics.NoInstance, f.problem.Answer(ErrCold))
	}
}

// Problem returns why the function's answers are errors, "" if they are not, in words for users.
func (f *Forwarder) Problem() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.siblings.Problem(time.Now())
}

// Stats holds the counters that scaling uses.
type Stats struct {
	// Arrivals counts the requests since the forwarder was made, Cold those that
	// found no ready instance.
	Arrivals, Cold uint64
	// InFlight is the number of requests on instances, Waiting the number without one.
	InFlight, Waiting int
}

// Stats reads the counters.
func (f *Forwarder) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Stats{Arrivals: f.arrivals.Load(), Cold: f.cold, InFlight: f.inFlight, Waiting: f.waiters.Len()}
}

// Close answers all waiting requests with ErrClosed and accepts no more. Requests in
// flight finish normally.
func (f *Forwarder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.closed {
		f.closed = true
		close(f.ended)
	}
	f.refuseAll(metrics.Closed, ErrClosed)
	for _, p := range f.instances {
		p.transport.CloseIdleConnections()
	}
}
