// Package local runs instances as processes of this machine: each in a control
// group of its own (version 1 or 2) that holds it to its CPU share, cores and
// memory, with its log in a file and its secrets in a mount namespace of its
// own. An ordinary function's program, which is not ours, sees a file system and
// processes of its own as well, runs as a user of its own, and is limited apart
// from the watchdog before it (package sandbox). Where the rights for these are
// missing it works all the same and says once what is lacking.
//
// Instances do not depend on the provider: killed and started again, it finds
// them by what it wrote down about each and takes them over. A process is
// known by its pid and start time, so one that merely got an old pid is never
// touched.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/cluster/local/logs"
	"github.com/faas-infer/faas-infer/cluster/local/process"
)

var (
	// ErrNoCapacity says that an instance asks for more than is free.
	ErrNoCapacity = errors.New("not enough capacity")
	// ErrClosed says that the backend was closed.
	ErrClosed = errors.New("the backend is closed")
)

// Backend runs instances on this machine. It is a [cluster.Backend].
type Backend struct {
	options Options
	log     zerolog.Logger
	layout  layout
	lock    *os.File
	total   cluster.Resources
	// tree is nil without cgroups.
	tree cgroup.Tree
	// sandboxed tells that secrets are mounted, isolated that ordinary
	// functions have a file system of their own, and users that their processes
	// run as users of their own.
	sandboxed, isolated, users bool

	logs   *logs.Store
	events *queue

	// ctx ends with Close; work counts the goroutines and calls that Close
	// waits for.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	// pinning is held while cores and quotas are given out, cgroups follow and
	// it is written down. It may be held when mu is taken, not the other way
	// round.
	pinning sync.Mutex
	cores   *coreAllocator

	mu      sync.Mutex
	own     reserve
	closed  bool
	entries map[cluster.InstanceID]*entry
}

var _ cluster.Backend = (*Backend)(nil)

// Logs is what instances printed, those that are gone included as far as it is
// kept. It rotates and forgets files by itself.
func (b *Backend) Logs() *logs.Store { return b.logs }

// entry is one instance.
type entry struct {
	backend *Backend
	// instance is guarded by Backend.mu.
	instance cluster.Instance
	// The next four do not change any more once launched is closed, but for the
	// record's ReadyAt and Cores, which pinning guards, and its Spec.Config and
	// Spec.Parked, for which a reader holds pinning or mu, and who changes them
	// both. group is
	// nil without cgroups; pid is 0 for a process that was taken over.
	record record
	group  cgroup.Group
	watch  *process.Watch
	pid    int

	// launched is closed once Start knows whether the process exists, gone once
	// nothing of it is left.
	launched, gone chan struct{}
	// ctx ends when the process does; readiness counts who waits for it to
	// become ready.
	ctx       context.Context
	cancel    context.CancelFunc
	readiness sync.WaitGroup

	// buried: what is left of it is being removed; guarded by Backend.pinning.
	buried bool
	// failure is why we killed it ourselves, guarded by Backend.mu.
	failure string

	usage sampler
}

// New takes over the instances that an earlier provider left in options.Dir,
// removes what it left half-made, and returns a backend that is ready to start
// more. It waits, until ctx ends, for another provider that still holds the
// directory.
func New(ctx context.Context, options Options) (*Backend, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		options: options,
		log:     options.Logger.With().Str("component", "cluster/local").Logger(),
		events:  newQueue(),
		entries: map[cluster.InstanceID]*entry{},
	}
	if b.layout, err = lay(options.Dir); err != nil {
		return nil, err
	}
	b.logs = &logs.Store{Dir: b.layout.logs(), MaxBytes: options.LogBytes, Keep: options.LogFiles}
	if err := b.size(); err != nil {
		return nil, err
	}
	if b.lock, err = acquire(ctx, b.layout.lock()); err != nil {
		return nil, err
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.claimRights()
	if err := errors.Join(b.layout.openSockets(), b.takeOver()); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.work.Go(func() { b.events.run(b.ctx) })
	b.work.Go(b.keepLogs)
	return b, nil
}

// size decides what there is to give away.
func (b *Backend) size() error {
	all := b.options.Cores
	if len(all) == 0 {
		var err error
		if all, err = ownCores(); err != nil {
			return err
		}
	}
	b.cores = newCoreAllocator(all)
	if b.options.Total != nil {
		b.total = *b.options.Total
		return nil
	}
	var err error
	b.total, err = measure(len(all))
	return err
}

// acquire locks the state directory. The lock goes with the process that holds
// it, which takes a moment to die when it was killed.
func acquire(ctx context.Context, path string) (*os.File, error) {
	const patience = 2 * time.Second
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			_ = file.Close()
			return nil, fmt.Errorf("%s is held by another provider: %w", path, errors.Join(err, ctx.Err()))
		}
	}
}

// pins reports whether instances are held to certain cores at all.
func (b *Backend) pins() bool { return b.options.PinCPUs || len(b.options.Cores) > 0 }

// Nodes returns this machine. Total is what instances may have: Options.Total less what
// processes beside them hold. Free is Total less what all instances that have not exited
// hold. Neither is ever below zero.
func (b *Backend) Nodes(context.Context) ([]cluster.Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	total := b.available()
	if b.keeps() {
		if now := b.options.Now(); b.own.due(now) {
			b.own.observe(now, b.options.Own())
		}
		total.CPU -= b.own.of(total.CPU)
	}
	free := b.less(total)
	total.Memory = max(0, total.Memory)
	free = cluster.Resources{CPU: max(0, free.CPU), GPU: max(0, free.GPU), Memory: max(0, free.Memory)}
	return []cluster.Node{{Name: b.options.NodeName, Total: total, Free: free}}, nil
}

// keeps reports whether a part of the CPU is kept for this process: not where its
// instances have been given cores of their own.
func (b *Backend) keeps() bool {
	return b.options.Own != nil && b.options.Total == nil && len(b.options.Cores) == 0
}

// available is what instances may have of the machine altogether; its memory is below
// zero where others hold more than there is. It is called with mu held.
func (b *Backend) available() cluster.Resources {
	total := b.total
	if b.options.Beside != nil {
		total.Memory -= b.options.Beside()
	}
	return total
}

// free is what no instance has, and what is kept for this process: what was planned
// before that grew has room. It is called with mu held.
func (b *Backend) free() cluster.Resources { return b.less(b.available()) }

// less is what instances leave of total. It is called with mu held.
func (b *Backend) less(total cluster.Resources) cluster.Resources {
	free := total
	for _, e := range b.entries {
		free = free.Sub(e.instance.Holds())
	}
	return free
}

// Instances lists the instances that exist, the oldest first.
func (b *Backend) Instances(context.Context) ([]cluster.Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	var instances []cluster.Instance
	for _, e := range b.entries {
		if isClosed(e.launched) {
			instances = append(instances, e.instance)
		}
	}
	slices.SortFunc(instances, func(a, b cluster.Instance) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return instances, nil
}

// Events delivers the states Ready, Stopping and Exited of every instance, in
// order per instance. The channel is closed by Close.
func (b *Backend) Events() <-chan cluster.Instance { return b.events.out }

// Place gives a process that this one has started the weight of any other on the machine,
// or, idle, only what nobody else wants of the cores; else it weighs as much as the provider.
func (b *Backend) Place(pid int, idle bool) error {
	if b.tree == nil || !b.options.Favour {
		return nil
	}
	return b.tree.Place(pid, idle)
}

// Close lets go of the instances without stopping them and waits until nothing
// of the backend runs any more.
func (b *Backend) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil
	}
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.work.Wait()
	for e := range maps.Values(b.entries) {
		e.watch.Close()
	}
	b.layout.closeSockets()
	var err error
	if b.tree != nil && b.options.Favour {
		err = b.tree.Leave()
	}
	if b.tree != nil && len(b.entries) == 0 {
		err = errors.Join(err, b.tree.Remove())
	}
	return errors.Join(err, b.lock.Close())
}

// emit changes an instance under mu by change, unless that returns false, and
// queues the event.
func (e *entry) emit(change func(*cluster.Instance) bool) bool {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if !change(&e.instance) {
		return false
	}
	b.events.push(e.instance)
	return true
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
