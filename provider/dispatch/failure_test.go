package dispatch

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
)

// An instance that refuses a batch is healthy: it stays, and the members get an error.
func TestARefusedBatchIsNotALostInstance(t *testing.T) {
	var lost atomic.Int64
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience, OnLost: func(cluster.InstanceID, error) { lost.Add(1) }})
	e := newEcho(t, nil)
	d.Up(instance("a", 4), "unix", e.address)
	e.refusing.Store(true)
	if _, err := d.Invoke(t.Context(), request("x")); !errors.Is(err, ErrRefused) {
		t.Errorf("error %v", err)
	}
	e.refusing.Store(false)
	if _, err := d.Invoke(t.Context(), request("x")); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
	if lost.Load() != 0 {
		t.Error("the instance counts as lost")
	}
}

// Nor is an instance lost because the provider has no file descriptor or port left.
func TestALocalShortageIsNotALostInstance(t *testing.T) {
	for _, lack := range []syscall.Errno{syscall.EMFILE, syscall.EADDRNOTAVAIL} {
		testShortage(t, lack)
	}
}

func testShortage(t *testing.T, lack syscall.Errno) {
	t.Helper()
	var short atomic.Bool
	short.Store(true)
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			if short.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: lack}
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}})
	e := newEcho(t, nil)
	d.Up(instance("a", 4), "unix", e.address)
	if _, err := d.Invoke(t.Context(), request("x")); !errors.Is(err, ErrExhausted) {
		t.Errorf("error %v", err)
	}
	short.Store(false)
	if _, err := d.Invoke(t.Context(), request("x")); err != nil {
		t.Errorf("once there are descriptors again: %v", err)
	}
}

func TestAClientThatLeftIsNotRetried(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	gate := make(chan struct{})
	e := newEcho(t, gate)
	e.broken.Store(true)
	d.Up(instance("a", 4), "unix", e.address)
	ctx, leave := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := d.Invoke(ctx, request("x"))
		answered <- err
	}()
	waitFor(t, func() bool { return !idle(d, "a") })
	leave()
	close(gate)
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if n := d.Stats().Waiting; n != 0 {
		t.Errorf("%d requests wait for nobody", n)
	}
}

func TestCutByBytes(t *testing.T) {
	large := func(n int) *call { return &call{request: request(string(make([]byte, n)))} }
	calls := []*call{large(maxExchange + 1), large(10), large(maxExchange - 10), large(1)}
	var sizes []int
	for rest := calls; len(rest) > 0; {
		part := cut(rest)
		sizes = append(sizes, len(part))
		rest = rest[len(part):]
	}
	if len(sizes) != 3 || sizes[0] != 1 || sizes[1] != 2 || sizes[2] != 1 {
		t.Errorf("exchanges of %v calls, want 1, 2 and 1", sizes)
	}
}

// A batch that is larger than one exchange is answered, too.
func TestALargeBatchTravelsInParts(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	gate := make(chan struct{})
	e := newEcho(t, gate)
	d.Up(instance("a", 8), "unix", e.address)
	var wait sync.WaitGroup
	invoke := func(body string) {
		wait.Go(func() {
			got, err := d.Invoke(t.Context(), request(body))
			if err != nil || len(got.Body) != len(body) {
				t.Errorf("a body of %d bytes: %v", len(body), err)
			}
		})
	}
	invoke("first")
	waitFor(t, func() bool { return !idle(d, "a") })
	for i := range 5 {
		invoke(string(make([]byte, 12<<20+i)))
	}
	waitFor(t, func() bool { return d.Stats().Waiting == 5 })
	close(gate)
	wait.Wait()
	if n := e.largest.Load(); n != 2 {
		t.Errorf("the largest exchange had %d members, want 2", n)
	}
}

// The end of an old policy's batch does not make the new policy believe that the
// instance is free.
func TestReconfigureKeepsCount(t *testing.T) {
	d, _ := newDispatcher(t, batching.SharedName, Options{SLO: patience})
	gate := make(chan struct{})
	e := newEcho(t, gate)
	d.Up(instance("a", 1), "unix", e.address)
	var wait sync.WaitGroup
	for range 12 {
		wait.Go(func() {
			if _, err := d.Invoke(t.Context(), request("x")); err != nil {
				t.Error(err)
			}
		})
	}
	// The old policy's batches reach their gate before the new policy's get another one.
	waitFor(t, func() bool { return d.Stats().Waiting == 10 && e.arrived.Load() == 2 })
	next := make(chan struct{})
	e.mu.Lock()
	e.gate = next
	e.mu.Unlock()
	d.Reconfigure(batching.NewShared(batching.Options{SLO: patience}), patience, false)
	close(gate) // Only those of the old policy are there.
	waitFor(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.instances["a"].inFlight == 2
	})
	close(next)
	wait.Wait()
}
