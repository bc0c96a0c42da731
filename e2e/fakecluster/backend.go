// Package fakecluster is a cluster in memory for the tests of the provider's controllers. Instances
// start, exit and answer as a test says, also in virtual time (testing/synctest). Begin with [Backend];
// [Rig] is a controller that runs on it.
package fakecluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Behaviour says what one instance does.
type Behaviour struct {
	// Refuse is Start's error.
	Refuse error
	// ReadyAfter is the time from its start until it is ready; 0 means [ColdStart],
	// a negative time never.
	ReadyAfter time.Duration
	// ExitAfter is the time from its start until it exits for ExitReason, 0 for never.
	ExitAfter  time.Duration
	ExitReason string
	// AnswerAfter is how long a request takes.
	AnswerAfter time.Duration
	// Deaf accepts no connection. Broken hangs up on requests, Hung never answers them.
	Deaf, Broken, Hung bool
}

// ColdStart is how long instances take to be ready, StopTime to leave.
const (
	ColdStart = 100 * time.Millisecond
	StopTime  = 20 * time.Millisecond
)

// Backend is a cluster in memory.
type Backend struct {
	// Test fails if an instance is started without room. Serve answers on a connection to an
	// instance, and returns when it breaks. Set both before the first start.
	Test  testing.TB
	Serve func(in *Instance, conn net.Conn)
	// Kind is that of the instances which may start.
	Kind cluster.Kind
	// News are the events. Work are the goroutines of instances.
	News chan cluster.Instance
	Work sync.WaitGroup

	// Mu guards what follows.
	Mu       sync.Mutex
	Machines []cluster.Node
	Running  map[cluster.InstanceID]*Instance
	// Started lists every instance that was asked for, and Most is the largest number of them at the
	// same time. Behave says what becomes of the n-th.
	Started []cluster.InstanceSpec
	Most    int
	Behave  func(n int, spec cluster.InstanceSpec) Behaviour
	// StopFails is how many more calls of Stop fail, and Looks how many calls of Nodes there were.
	StopFails, Looks int
}

// Instance is one instance. It ends with its context.
type Instance struct {
	cluster.Instance
	Behaviour
	Context context.Context
	cancel  context.CancelFunc
	conns   []net.Conn
}

// New returns a cluster with one node, n1, of four cores and so much memory in bytes.
func New(t testing.TB, memory int64) *Backend {
	return &Backend{
		Test: t, Behave: func(int, cluster.InstanceSpec) Behaviour { return Behaviour{} },
		News: make(chan cluster.Instance, 1<<16), Running: map[cluster.InstanceID]*Instance{},
		Machines: []cluster.Node{{Name: "n1", Total: cluster.Resources{CPU: 4000, Memory: memory}}},
	}
}

// Nodes implements [cluster.Backend].
func (b *Backend) Nodes(context.Context) ([]cluster.Node, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Looks++
	return slices.Clone(b.Machines), nil
}

// Start implements [cluster.Backend]. The test fails if the node has no room.
func (b *Backend) Start(ctx context.Context, spec cluster.InstanceSpec) (cluster.Instance, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	how := b.Behave(len(b.Started), spec)
	b.Started = append(b.Started, spec)
	if err := errors.Join(ctx.Err(), how.Refuse); err != nil {
		return cluster.Instance{}, err
	}
	held := b.held(spec.Node, "").Add(spec.Config.Resources)
	if at := b.at(spec.Node); spec.Kind != b.Kind || at < 0 || !held.Fits(b.Machines[at].Total) {
		b.Test.Errorf("%s: asked for %v on %q, which is more than it has", spec.ID, spec.Config, spec.Node)
		return cluster.Instance{}, errors.New("no capacity")
	}
	in := b.Add(spec, how)
	b.Most = max(b.Most, len(b.Running))
	return in.Instance, nil
}

// at returns the index of a node, -1 if there is none.
func (b *Backend) at(node string) int {
	return slices.IndexFunc(b.Machines, func(n cluster.Node) bool { return n.Name == node })
}

// held sums up what the instances on a node hold, but for one.
func (b *Backend) held(node string, but cluster.InstanceID) (sum cluster.Resources) {
	for id, in := range b.Running {
		if in.Node == node && id != but {
			sum = sum.Add(in.Holds())
		}
	}
	return sum
}

// Put adds an instance as it is, to which nothing happens by itself. Mu is held.
func (b *Backend) Put(seen cluster.Instance, how Behaviour) *Instance {
	in := &Instance{Behaviour: how, Instance: seen}
	in.Context, in.cancel = context.WithCancel(context.Background())
	b.Running[seen.ID] = in
	return in
}

// Add adds an instance that starts. Mu is held.
func (b *Backend) Add(spec cluster.InstanceSpec, how Behaviour) *Instance {
	in := b.Put(cluster.Instance{
		InstanceSpec: spec, State: cluster.Starting, Network: "fake", Address: string(spec.ID), StartedAt: time.Now(),
	}, how)
	if how.ReadyAfter == 0 {
		how.ReadyAfter = ColdStart
	}
	b.after(in, how.ReadyAfter, func() {
		if in.State == cluster.Starting {
			in.State, in.ReadyAt = cluster.Ready, time.Now()
			b.News <- in.Instance
		}
	})
	b.after(in, how.ExitAfter, func() { b.Exit(in, how.ExitReason) })
	return in
}

// after runs f with Mu held after d above 0, if the instance lives then.
func (b *Backend) after(in *Instance, d time.Duration, f func()) {
	if d <= 0 {
		return
	}
	b.Work.Go(func() {
		select {
		case <-time.After(d):
		case <-in.Context.Done():
		}
		b.Mu.Lock()
		defer b.Mu.Unlock()
		if in.Context.Err() == nil {
			f()
		}
	})
}

// Exit ends an instance. Mu is held.
func (b *Backend) Exit(in *Instance, reason string) {
	in.State, in.Reason = cluster.Exited, reason
	in.cancel()
	for _, conn := range in.conns {
		_ = conn.Close() // Its other end may have closed it.
	}
	delete(b.Running, in.ID)
	b.News <- in.Instance
}

// Crash ends a living instance for a reason.
func (b *Backend) Crash(id cluster.InstanceID, reason string) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Exit(b.Running[id], reason)
}

// Stop implements [cluster.Backend].
func (b *Backend) Stop(ctx context.Context, id cluster.InstanceID) error {
	b.Mu.Lock()
	in, ok := b.Running[id]
	if b.StopFails > 0 {
		b.StopFails--
		b.Mu.Unlock()
		return errors.New("no answer")
	}
	if ok && in.State != cluster.Stopping {
		in.State = cluster.Stopping
		b.News <- in.Instance
	}
	b.Mu.Unlock()
	if !ok {
		return nil
	}
	select {
	case <-time.After(StopTime):
	case <-ctx.Done():
	case <-in.Context.Done():
	}
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if in.Context.Err() == nil {
		b.Exit(in, "stopped")
	}
	return nil
}

// Instances implements [cluster.Backend].
func (b *Backend) Instances(context.Context) ([]cluster.Instance, error) { return b.Living(), nil }

// Living lists the instances that exist, by ID.
func (b *Backend) Living() []cluster.Instance {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	var out []cluster.Instance
	for _, id := range slices.Sorted(maps.Keys(b.Running)) {
		out = append(out, b.Running[id].Instance)
	}
	return out
}

// Asked counts the instances that were asked for.
func (b *Backend) Asked() int {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return len(b.Started)
}

// Becomes says what becomes of the n-th instance from now on.
func (b *Backend) Becomes(behave func(n int, spec cluster.InstanceSpec) Behaviour) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.Behave = behave
}

// Events implements [cluster.Backend].
func (b *Backend) Events() <-chan cluster.Instance { return b.News }

// Usage implements [cluster.Backend].
func (b *Backend) Usage(_ context.Context, id cluster.InstanceID) (cluster.Resources, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if _, ok := b.Running[id]; !ok {
		return cluster.Resources{}, errors.New("no such instance")
	}
	return cluster.Resources{CPU: 100, Memory: 1 << 20}, nil
}

// Resize implements [cluster.Backend]. The test fails if the node has no room.
func (b *Backend) Resize(_ context.Context, id cluster.InstanceID, config cluster.Config) error {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	in, ok := b.Running[id]
	if !ok {
		return errors.New("no such instance")
	}
	if held := b.held(in.Node, id).Add(config.Resources); !held.Fits(b.Machines[b.at(in.Node)].Total) {
		b.Test.Errorf("%s: resized to %v, which is more than the node has", id, config)
	}
	in.Config, in.Parked = config, false
	return nil
}

// Park implements [cluster.Backend].
func (b *Backend) Park(_ context.Context, id cluster.InstanceID) error {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	in, ok := b.Running[id]
	if !ok || in.State != cluster.Ready {
		return errors.New("no such instance")
	}
	in.Parked = true
	return nil
}

// Close implements [cluster.Backend].
func (b *Backend) Close() error { return nil }

// Dial connects to an instance, whose ID is the address.
func (b *Backend) Dial(_ context.Context, _, address string) (net.Conn, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	in, ok := b.Running[cluster.InstanceID(address)]
	if !ok || in.Deaf {
		return nil, fmt.Errorf("%s: connection refused", address)
	}
	ours, theirs := net.Pipe()
	in.conns = append(in.conns, ours)
	b.Work.Go(func() {
		defer ours.Close()
		b.Serve(in, ours)
	})
	return theirs, nil
}
