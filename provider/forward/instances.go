package forward

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/duplex"
	"github.com/faas-infer/faas-infer/provider/metrics"
)

const (
	// keepConnections is how many connections to an instance stay open for
	// keepIdle after their last request. That is shorter than a watchdog keeps
	// them, so that none closes while a request is being written to it.
	keepConnections = 64
	keepIdle        = 4 * time.Second
	// dialPatience is how long it is tried to reach an instance whose queue of
	// connections is full.
	dialPatience = 5 * time.Second
)

// Up makes an instance available that listens at network and address (net.Dial's
// terms). Waiting requests go there at once. A second Up with the same ID does
// nothing.
func (f *Forwarder) Up(id cluster.InstanceID, network, address string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.peers[id]; known || f.closed {
		return
	}
	p := &peer{id: id, up: true, transport: f.transport(network, address)}
	f.peers[id] = p
	f.ready = append(f.ready, p)
	for f.waiters.Len() > 0 {
		f.answer(grant{peer: f.pick(nil)})
	}
}

// transport is the way to one instance.
func (f *Forwarder) transport(network, address string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return f.dial(ctx, network, address)
		},
		// The function's answer is passed on as it is.
		DisableCompression:  true,
		MaxIdleConnsPerHost: keepConnections,
		IdleConnTimeout:     keepIdle,
	}
}

// dial connects to an instance. A Unix socket whose queue is full says EAGAIN at
// once, where TCP would wait.
func (f *Forwarder) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		conn, err := f.options.Dial(ctx, network, address)
		if err == nil {
			return duplex.Conn(conn), nil
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return nil, &dialError{err}
		}
		select {
		case <-ctx.Done():
			return nil, &dialError{err}
		case <-time.After(pause):
		}
	}
}

// Drain gives an instance nothing new and returns when it has nothing left in
// flight, or with ctx's error.
func (f *Forwarder) Drain(ctx context.Context, id cluster.InstanceID) error {
	f.mu.Lock()
	p, ok := f.peers[id]
	if !ok {
		f.mu.Unlock()
		return nil
	}
	f.down(p)
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

// Forget removes an instance that is gone, and tells whether it ever answered a
// request.
func (f *Forwarder) Forget(id cluster.InstanceID) (served bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.peers[id]
	if !ok {
		return false
	}
	f.down(p)
	delete(f.peers, id)
	if p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
	p.transport.CloseIdleConnections()
	return p.served
}

// SetProblem tells why the function has no ready instance, for the requests that
// wait for one in vain; "" takes it back. With refuse, it is of no use to wait:
// requests that find no ready instance are answered at once, those that wait
// already included. While an instance is ready it changes nothing.
func (f *Forwarder) SetProblem(reason string, refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problem = problem{reason, refuse && reason != ""}
	if f.problem.refuse {
		f.refuseAll(metrics.NoInstance, f.problem.error())
	}
}

// Stats is what scaling wants to know.
type Stats struct {
	// Arrivals counts the requests since the forwarder began, Cold those that
	// found no ready instance.
	Arrivals, Cold uint64
	// InFlight and Waiting are the requests on instances and those that have
	// none.
	InFlight, Waiting int
}

// Stats reads the counters.
func (f *Forwarder) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Stats{Arrivals: f.arrivals.Load(), Cold: f.cold, InFlight: f.inFlight, Waiting: f.waiters.Len()}
}

// Close answers everything that waits with ErrClosed and takes nothing more.
// Requests in flight end as they would.
func (f *Forwarder) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.refuseAll(metrics.Closed, ErrClosed)
	for _, p := range f.peers {
		p.transport.CloseIdleConnections()
	}
}
