package processes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// behaviour says what one instance of the fake backend does.
type behaviour struct {
	// refuse is Start's error.
	refuse error
	// readyAfter is the time from its start until it is ready; 0 means coldStart,
	// a negative time never.
	readyAfter time.Duration
	// exitAfter is the time from its start until it exits for reason, 0 for never.
	exitAfter time.Duration
	reason    string
	// answerAfter is how long a request takes.
	answerAfter time.Duration
	// deaf accepts no connection.
	deaf bool
}

const (
	// coldStart is how long the fake's instances take to be ready, stopTime
	// to leave.
	coldStart = 100 * time.Millisecond
	stopTime  = 20 * time.Millisecond
)

// fakeBackend is a cluster in memory. Its instances answer HTTP over pipes.
type fakeBackend struct {
	t      testing.TB
	behave func(n int, spec cluster.InstanceSpec) behaviour
	events chan cluster.Instance
	work   sync.WaitGroup

	mu        sync.Mutex
	nodes     []cluster.Node
	instances map[cluster.InstanceID]*fakeInstance
	// started lists every instance that was asked for.
	started   []cluster.InstanceSpec
	stopFails int
	// most is the maximum number of instances at the same time.
	most int
}

type fakeInstance struct {
	cluster.Instance
	behaviour
	ctx      context.Context
	cancel   context.CancelFunc
	server   *http.Server
	pipes    *pipes
	answered atomic.Int64
	inFlight atomic.Int64
}

func newFakeBackend(t testing.TB) *fakeBackend {
	return &fakeBackend{
		t: t, behave: func(int, cluster.InstanceSpec) behaviour { return behaviour{} },
		events: make(chan cluster.Instance, 1<<16), instances: map[cluster.InstanceID]*fakeInstance{},
		nodes: []cluster.Node{{Name: "n1", Total: cluster.Resources{CPU: 4000, Memory: 8 << 30}}},
	}
}

func (b *fakeBackend) Nodes(context.Context) ([]cluster.Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.nodes), nil
}

func (b *fakeBackend) Start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	how := b.behave(len(b.started), spec)
	b.started = append(b.started, spec)
	if err := errors.Join(ctx.Err(), how.refuse); err != nil {
		return cluster.Instance{}, err
	}
	held := spec.Config.Resources
	for _, in := range b.instances {
		held = held.Add(in.Config.Resources)
	}
	if spec.Kind != cluster.Process || spec.Node != "n1" || !held.Fits(b.nodes[0].Total) {
		b.t.Errorf("%s: asked for %v on %q, which is more than it has", spec.ID, spec.Config, spec.Node)
	}
	in := b.add(spec, how)
	b.most = max(b.most, len(b.instances))
	return in.Instance, nil
}

// add makes an instance. The lock is held.
func (b *fakeBackend) add(spec cluster.InstanceSpec, how behaviour) *fakeInstance {
	in := &fakeInstance{behaviour: how, pipes: newPipes(),
		Instance: cluster.Instance{InstanceSpec: spec, State: cluster.Starting, Network: "fake", Address: string(spec.ID), StartedAt: time.Now()}}
	in.ctx, in.cancel = context.WithCancel(context.Background())
	in.server = &http.Server{Handler: in}
	b.work.Go(func() { in.server.Serve(in.pipes) })
	b.instances[spec.ID] = in
	if how.readyAfter == 0 {
		how.readyAfter = coldStart
	}
	b.after(in, how.readyAfter, func() {
		if in.State == cluster.Starting {
			in.State, in.ReadyAt = cluster.Ready, time.Now()
			b.events <- in.Instance
		}
	})
	b.after(in, how.exitAfter, func() { b.exit(in, how.reason) })
	return in
}

// after runs f under the lock after d above 0, if the instance lives then.
func (b *fakeBackend) after(in *fakeInstance, d time.Duration, f func()) {
	if d <= 0 {
		return
	}
	b.work.Go(func() {
		select {
		case <-time.After(d):
		case <-in.ctx.Done():
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if in.ctx.Err() == nil {
			f()
		}
	})
}

// exit ends an instance. The lock is held.
func (b *fakeBackend) exit(in *fakeInstance, reason string) {
	in.State, in.Reason = cluster.Exited, reason
	in.cancel()
	in.server.Close()
	delete(b.instances, in.ID)
	b.events <- in.Instance
}

// crash ends a living instance for a reason.
func (b *fakeBackend) crash(id cluster.InstanceID, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.exit(b.instances[id], reason)
}

func (b *fakeBackend) Stop(ctx context.Context, id cluster.InstanceID) error {
	b.mu.Lock()
	in, ok := b.instances[id]
	if b.stopFails > 0 {
		b.stopFails--
		b.mu.Unlock()
		return errors.New("no answer")
	}
	if ok && in.State != cluster.Stopping {
		in.State = cluster.Stopping
		b.events <- in.Instance
	}
	b.mu.Unlock()
	if !ok {
		return nil
	}
	select {
	case <-time.After(stopTime):
	case <-ctx.Done():
	case <-in.ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if in.ctx.Err() == nil {
		b.exit(in, "stopped")
	}
	return nil
}

func (b *fakeBackend) Instances(context.Context) ([]cluster.Instance, error) { return b.living(), nil }

// living lists what exists, by ID.
func (b *fakeBackend) living() []cluster.Instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []cluster.Instance
	for _, id := range slices.Sorted(maps.Keys(b.instances)) {
		out = append(out, b.instances[id].Instance)
	}
	return out
}

func (b *fakeBackend) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.started)
}

// becomes says what becomes of the n-th instance from now on.
func (b *fakeBackend) becomes(behave func(n int, spec cluster.InstanceSpec) behaviour) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behave = behave
}

func (b *fakeBackend) Events() <-chan cluster.Instance { return b.events }

func (b *fakeBackend) Usage(_ context.Context, id cluster.InstanceID) (cluster.Resources, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.instances[id]; !ok {
		return cluster.Resources{}, errors.New("no such instance")
	}
	return cluster.Resources{CPU: 100, Memory: 1 << 20}, nil
}

func (b *fakeBackend) Resize(context.Context, cluster.InstanceID, cluster.Config) error {
	return errors.New("a program's instance has no quota that could be changed")
}

func (b *fakeBackend) Park(context.Context, cluster.InstanceID) error {
	return errors.New("a program's instance has no quota that it could give back")
}

func (b *fakeBackend) Close() error { return nil }

// Dial connects to an instance.
func (b *fakeBackend) Dial(_ context.Context, _, address string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, ok := b.instances[cluster.InstanceID(address)]
	if !ok || in.deaf {
		return nil, fmt.Errorf("%s: connection refused", address)
	}
	return in.pipes.dial()
}

// ServeHTTP answers with the function's bundle and the body.
func (in *fakeInstance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/_/health" {
		return
	}
	in.inFlight.Add(1)
	defer in.inFlight.Add(-1)
	body, _ := io.ReadAll(r.Body)
	select {
	case <-time.After(in.answerAfter):
	case <-in.ctx.Done():
		panic(http.ErrAbortHandler)
	}
	in.answered.Add(1)
	fmt.Fprintf(w, "%s:%s", in.Bundle, body)
}

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- ours:
		return theirs, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "fake", Net: "unix"} }
