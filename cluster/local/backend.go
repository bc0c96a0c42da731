// Package local runs instances as processes of this machine. Each instance has its own
// control group (version 1 or 2), which limits its CPU share, cores and memory, its own
// log file, and its own mount namespace with its secrets. An ordinary function's program
// is not trusted: it also has its own file system, processes and user, and its limits
// do not include the watchdog in front of it (package sandbox). If the provider lacks
// the rights for these, instances run without them and the log says once what is missing.
//
// Instances do not depend on the provider. After a restart it finds them by its record
// of each and takes them over. It identifies a process by pid and start time, so it never
// touches a process that got an old pid.
//
// The package does not decide what to start. Begin reading at [New] and [Backend.Start].
package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/events"
	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/cluster/local/gpus"
	"github.com/faas-infer/faas-infer/cluster/local/logs"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/filelock"
)

var (
	// ErrNoCapacity means that an instance asks for more than is free.
	ErrNoCapacity = errors.New("not enough capacity")
	// ErrClosed means that the backend was closed.
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
	// sandboxed: secrets are mounted. isolated: ordinary functions have a
	// private file system. users: their processes run as users of their own.
	sandboxed, isolated, users bool

	gpus      *gpus.GPUs
	logs      *logs.Store
	events    *events.Queue
	leftovers *leftovers

	// ctx ends with Close; work counts the goroutines and calls that Close
	// waits for.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	// pinning is held while cores and quotas change, in memory, in cgroups and
	// in records. Take it before mu, never the other way round.
	pinning sync.Mutex
	cores   *coreAllocator
	busy    busyMeter

	mu      sync.Mutex
	own     reserve
	closed  bool
	entries map[cluster.InstanceID]*entry
}

var _ cluster.Backend = (*Backend)(nil)

// Logs returns the store of instances' logs, including those of exited instances
// that are still kept. It rotates and deletes files by itself.
func (b *Backend) Logs() *logs.Store { return b.logs }

// entry is one instance.
type entry struct {
	backend *Backend
	// instance is guarded by Backend.mu.
	instance cluster.Instance
	// The next four fields do not change once launched is closed, with two
	// exceptions in the record: pinning guards ReadyAt and Cores; a reader of
	// Spec.Config and Spec.Parked holds pinning or mu, a writer holds both. group
	// is nil without cgroups. pid is 0 for a process that was taken over.
	record record
	group  cgroup.Group
	watch  *process.Watch
	pid    int

	// launched is closed once Start knows whether the process exists, gone once
	// nothing of it is left.
	launched, gone chan struct{}
	// ctx ends when the process does; readiness counts the goroutines that wait
	// for it to become ready.
	ctx       context.Context
	cancel    context.CancelFunc
	readiness sync.WaitGroup

	// removing: its remains are being removed. roams: it was moved off its exclusive cores
	// ([Backend.Move]). unsaved: its record could not be written. Backend.pinning guards them.
	removing, roams, unsaved bool
	// failure is why the backend killed it, guarded by Backend.mu.
	failure string

	usage sampler
}

// New takes over the instances that an earlier provider left in options.Dir,
// removes incomplete ones, and returns a backend that is ready to start more. It tries
// again later to remove what it cannot remove now. If another provider holds the directory, it waits up to 2 s or until ctx ends.
func New(ctx context.Context, options Options) (*Backend, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		options: options,
		log:     options.Logger.With().Str("component", "cluster/local").Logger(),
		events:  events.NewQueue(),
		entries: map[cluster.InstanceID]*entry{},
	}
	b.leftovers = newLeftovers(b)
	if b.layout, err = newLayout(options.Dir); err != nil {
		return nil, err
	}
	b.layout.removeAll = options.removeAll
	b.logs = &logs.Store{Dir: b.layout.logs(), MaxBytes: options.LogBytes, Keep: options.LogFiles}
	if err := b.setTotal(); err != nil {
		return nil, err
	}
	if b.lock, err = acquire(ctx, b.layout.lock()); err != nil {
		return nil, err
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.claimRights()
	if err := errors.Join(b.layout.openSockets(), openGPUs(ctx, b), b.takeOver()); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	dropWhere(b, b.gpus.Stale) // Instances of an earlier provider may not be able to go on.
	b.work.Go(func() { b.events.Run(b.ctx) })
	b.work.Go(b.keepLogs)
	b.work.Go(b.leftovers.run)
	return b, nil
}

// setTotal determines the cores and resources that instances may have.
func (b *Backend) setTotal() error {
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

// acquire locks the state directory. The lock ends with the process that holds
// it; a killed process takes a moment to die, so acquire retries for 2 s.
func acquire(ctx context.Context, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", err)
	}
	if err := filelock.Lock(ctx, file, filelock.Exclusive, 2*time.Second); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s is held by another provider; stop it or use another state directory: %w", path, err)
	}
	return file, nil
}

// pins reports whether instances are limited to certain cores.
func (b *Backend) pins() bool { return b.options.PinCPUs || len(b.options.Cores) > 0 }

// Nodes returns this machine. Total is what instances may have: the machine or
// Options.Total, less the memory that Options.Beside reports, less the CPU that is
// reserved for this process. Free is Total less what all instances that have not exited
// hold. Neither is ever below zero.
func (b *Backend) Nodes(context.Context) ([]cluster.Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	total := b.available()
	if b.reservesOwn() {
		if now := b.options.Now(); b.own.due(now) {
			b.own.observe(now, b.options.Own())
		}
		total.CPU -= b.own.of(total.CPU)
	}
	n := b.remainder(total)
	n.Total.Memory = max(0, n.Total.Memory)
	f := &n.Free
	f.CPU, f.GPU, f.Memory, f.GPUMemory = max(0, f.CPU), max(0, f.GPU), max(0, f.Memory), max(0, f.GPUMemory)
	return []cluster.Node{n}, nil
}

// reservesOwn reports whether a part of the CPU is reserved for this process. It is not if
// Options.Total or Options.Cores says what instances may have.
func (b *Backend) reservesOwn() bool {
	return b.options.Own != nil && b.options.Total == nil && len(b.options.Cores) == 0
}

// available returns what all instances together may have of the machine. Its memory is
// below zero if other processes hold more than there is. It is called with mu held.
func (b *Backend) available() cluster.Resources {
	total := b.total
	if b.options.Beside != nil {
		total.Memory -= b.options.Beside()
	}
	return total
}

// free returns this machine with what no instance holds, including what is reserved for this
// process: an action that was planned before the reserve grew still has room. It is called with mu
// held.
func (b *Backend) free() cluster.Node { return b.remainder(b.available()) }

// remainder returns this machine with what instances leave of total and of its GPUs. It is called with
// mu held.
func (b *Backend) remainder(total cluster.Resources) cluster.Node {
	n := cluster.Node{Name: b.options.NodeName, Total: total, Devices: b.gpus.Inventory().Rooms(nil)}
	of, _ := cluster.SumDevices(n.Devices)
	n.Total.GPU, n.Total.GPUMemory = n.Total.GPU+of.GPU, n.Total.GPUMemory+of.GPUMemory
	count := n.Recount()
	for _, e := range b.entries {
		count.Take(&e.instance.InstanceSpec, e.instance.Holds())
	}
	count.Done()
	return n
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
	slices.SortFunc(instances, cluster.CompareAge)
	return instances, nil
}

// Events delivers the states Ready, Stopping and Exited of every instance, in
// order per instance. Close closes the channel.
func (b *Backend) Events() <-chan cluster.Instance { return b.events.Out() }

// Place gives a process that this one started the CPU weight of any other process on the
// machine. With idle, the process gets only CPU time that nobody else wants. Without
// Place, it weighs as much as the provider.
func (b *Backend) Place(pid int, idle bool) error {
	if b.tree == nil || !b.options.Favour {
		return nil
	}
	return b.tree.Place(pid, idle)
}

// Close releases the instances without stopping them and waits until nothing
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
	if len(b.leftovers.records) > 0 {
		b.leftovers.tidy() // The processes that were killed may have ended meanwhile.
	}
	for e := range maps.Values(b.entries) {
		e.watch.Close()
	}
	err := b.gpus.Close(len(b.entries) > 0)
	b.layout.closeSockets()
	if b.tree != nil && b.options.Favour {
		err = errors.Join(err, b.tree.Leave())
	}
	if b.tree != nil && len(b.entries)+len(b.leftovers.records) == 0 {
		err = errors.Join(err, b.tree.Remove())
	}
	return errors.Join(err, b.lock.Close())
}

// emit calls change on an instance under mu and queues the event. If change returns
// false, there is no event.
func (e *entry) emit(change func(*cluster.Instance) bool) bool {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if !change(&e.instance) {
		return false
	}
	b.events.Push(e.instance)
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
