package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/profiler"
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
	// broken hangs up on batches, hung never answers them.
	broken, hung bool
}

const (
	// coldStart is how long the fake's instances take to be ready, stopTime
	// to leave.
	coldStart = 100 * time.Millisecond
	stopTime  = 20 * time.Millisecond
)

// fakeBackend is a cluster in memory. Its instances answer batches over pipes.
type fakeBackend struct {
	t      testing.TB
	behave func(n int, spec cluster.InstanceSpec) behaviour
	// takes returns the factor by which an instance's batches are slower than the
	// model. Instances report their times only if it is not nil.
	takes func(cluster.Config) float64
	// elements is the size of the rows of all requests, 0 if instances report none. Batches of
	// models of texts take in proportion to it.
	elements int64
	// disturbed is a node on which batches take three times as long.
	disturbed string
	events    chan cluster.Instance
	work      sync.WaitGroup

	mu        sync.Mutex
	nodes     []cluster.Node
	instances map[cluster.InstanceID]*fakeInstance
	// started lists every instance that was asked for.
	started   []cluster.InstanceSpec
	stopFails int
	// resized lists the configs that Resize got; resizeFails makes it fail.
	resized     []cluster.Config
	resizeFails bool
	// parked counts the calls of Park; parkFails makes them fail.
	parked    int
	parkFails bool
	// slowly is how long Park and Resize take.
	slowly time.Duration
	listed int
}

type fakeInstance struct {
	cluster.Instance
	behaviour
	conns  []net.Conn
	ctx    context.Context
	cancel context.CancelFunc
}

func newFakeBackend(t testing.TB) *fakeBackend {
	return &fakeBackend{
		t: t, behave: func(int, cluster.InstanceSpec) behaviour { return behaviour{} },
		events: make(chan cluster.Instance, 1<<16), instances: map[cluster.InstanceID]*fakeInstance{},
		nodes: []cluster.Node{{Name: "n1", Total: cluster.Resources{CPU: 4000, Memory: 64 << 30}}},
	}
}

func (b *fakeBackend) Nodes(context.Context) ([]cluster.Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listed++
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
		if in.Node == spec.Node {
			held = held.Add(in.Holds())
		}
	}
	at := slices.IndexFunc(b.nodes, func(n cluster.Node) bool { return n.Name == spec.Node })
	if at < 0 || !held.Fits(b.nodes[at].Total) {
		b.t.Errorf("%s: asked for %v on %q, which is more than it has", spec.ID, spec.Config, spec.Node)
		return cluster.Instance{}, errors.New("no capacity")
	}
	return b.add(spec, how).Instance, nil
}

// add makes an instance. The lock is held.
func (b *fakeBackend) add(spec cluster.InstanceSpec, how behaviour) *fakeInstance {
	in := &fakeInstance{behaviour: how, Instance: cluster.Instance{InstanceSpec: spec, State: cluster.Starting, Network: "fake", Address: string(spec.ID), StartedAt: time.Now()}}
	in.ctx, in.cancel = context.WithCancel(context.Background())
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
	for _, conn := range in.conns {
		conn.Close()
	}
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

func (b *fakeBackend) Instances(context.Context) ([]cluster.Instance, error) {
	return b.living(), nil
}

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

// Resize changes an instance's quota, unless resizeFails is set.
func (b *fakeBackend) Resize(_ context.Context, id cluster.InstanceID, config cluster.Config) error {
	time.Sleep(b.slowly)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resized = append(b.resized, config)
	in, ok := b.instances[id]
	if !ok || b.resizeFails {
		return errors.New("no such instance")
	}
	held := config.Resources
	for other, o := range b.instances {
		if o.Node == in.Node && other != id {
			held = held.Add(o.Holds())
		}
	}
	if at := slices.IndexFunc(b.nodes, func(n cluster.Node) bool { return n.Name == in.Node }); !held.Fits(b.nodes[at].Total) {
		b.t.Errorf("%s: resized to %v, which is more than the node has", id, config)
	}
	in.Config, in.Parked = config, false
	return nil
}

// Park takes an instance's share, unless parkFails is set.
func (b *fakeBackend) Park(_ context.Context, id cluster.InstanceID) error {
	time.Sleep(b.slowly)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parked++
	in, ok := b.instances[id]
	if !ok || in.State != cluster.Ready || b.parkFails {
		return errors.New("no such instance")
	}
	in.Parked = true
	return nil
}

// widen gives the node so many millicores.
func (b *fakeBackend) widen(cpu int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes[0].Total.CPU = cpu
}

// looks counts the calls of Nodes.
func (b *fakeBackend) looks() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listed
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

func (b *fakeBackend) Close() error { return nil }

// Dial connects to an instance.
func (b *fakeBackend) Dial(_ context.Context, _, address string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, ok := b.instances[cluster.InstanceID(address)]
	if !ok {
		return nil, fmt.Errorf("%s: connection refused", address)
	}
	ours, theirs := net.Pipe()
	in.conns = append(in.conns, ours)
	b.work.Go(func() {
		defer ours.Close()
		in.serve(ours, b.exec, b.size)
	})
	return theirs, nil
}

// exec returns how long an instance takes for a batch, and whether it reports it. If it
// does, it has the right number of threads, and pauses as long as a loaded instance may.
func (b *fakeBackend) exec(in *fakeInstance, batch int) (took time.Duration, reported bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if in.Parked {
		b.t.Errorf("%s is given a batch while it is parked", in.ID)
	}
	if in.Config.GPU > 0 {
		return gpuTime(in.Model, batch, in.Config.GPU), b.takes != nil
	}
	if b.takes == nil {
		return execTime(in.Model, batch, 1), false
	}
	took = time.Duration(b.takes(in.Config) * float64(execTime(in.Model, batch, in.Config.Threads())))
	if in.Node == b.disturbed {
		took *= 3
	}
	if b.elements > 0 {
		took = took * time.Duration(b.elements) / 256
	}
	if quota := profiler.QuotaPeriod * time.Duration(in.Config.CPU) / 1000; in.Config.CPU < 1000 {
		took += (took + quota - 1) / quota * (profiler.QuotaPeriod - quota)
	}
	return took, true
}

// take sets how long batches take from now on.
func (b *fakeBackend) take(takes func(cluster.Config) float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takes = takes
}

// lengthen sets the size of the rows of all requests from now on.
func (b *fakeBackend) lengthen(elements int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.elements = elements
}

// size is the size of the rows of all requests.
func (b *fakeBackend) size() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.elements
}

// disturb slows down the instances of a node from now on, of none if it is "".
func (b *fakeBackend) disturb(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.disturbed = node
}

// serve answers every member with the function's prepared model and its own
// body.
func (in *fakeInstance) serve(conn net.Conn, exec func(in *fakeInstance, batch int) (time.Duration, bool), size func() int64) {
	reader := bufio.NewReader(conn)
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil || in.broken {
			return
		}
		if in.hung {
			<-in.ctx.Done()
			return
		}
		if request.URL.Path == "/_/health" {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			continue
		}
		members, err := frame.DecodeRequests(body)
		if err != nil {
			return
		}
		took, reported := exec(in, len(members))
		time.Sleep(took)
		report := ""
		if reported {
			report = fmt.Sprintf("%s: %d\r\n", frame.ExecHeader, took.Microseconds())
			if elements := size(); elements > 0 {
				report += fmt.Sprintf("%s: %d\r\n", frame.ElementsHeader, elements)
			}
		}
		answers := make([]frame.Response, len(members))
		for i, m := range members {
			answers[i] = frame.Response{Status: 200, Header: http.Header{}, Body: []byte(in.Model + ":" + string(m.Body))}
		}
		buffers, length := frame.EncodeResponses(answers)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n", report, length)
		if _, err := buffers.WriteTo(conn); err != nil {
			return
		}
	}
}
