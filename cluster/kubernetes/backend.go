// Package kubernetes runs instances as the pods of a cluster: one pod each, on the
// node that the scheduler chose and with the share that it chose. The cluster's own
// scheduler and kubelets still have to agree.
//
// The backend watches pods and nodes; it polls nothing. The pods are the state:
// every replica of the provider that watches them knows the same, and one that starts
// anew finds what runs. A pod that stands for an instance of which it was told that
// it has exited is deleted wherever it turns up again, so that a watch that was cut
// or told old news leaves nothing behind.
package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
)

var (
	// ErrClosed says that the backend was closed.
	ErrClosed = errors.New("the backend is closed")
	// ErrNoResize says that the cluster cannot change what a running pod may use.
	ErrNoResize = errors.New("the cluster cannot resize running pods: that takes Kubernetes 1.33 or later")
)

// Backend runs instances on a Kubernetes cluster. It is a [cluster.Backend].
type Backend struct {
	options  Options
	log      zerolog.Logger
	selector labels.Selector
	prober   *prober
	meter    *usageMeter
	events   *queue
	writes   writes
	noted    sync.Once

	// ctx ends with Close; work counts what goes on in the background.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// told: somebody has listed the instances, and is told of changes from then on.
	announced bool
	entries   map[cluster.InstanceID]*entry
	// over are instances that have exited, and when they were told to have.
	over map[cluster.InstanceID]time.Time
	// strange are pods that claim to be ours and are not, so that it is said once.
	strange map[types.UID]bool
	fleet   fleet
}

var _ cluster.Backend = (*Backend)(nil)

// entry is one instance.
type entry struct {
	backend *Backend
	// begun is closed once its pod exists, gone once nothing of it is left.
	begun, gone chan struct{}

	// All that follows is guarded by Backend.mu.
	instance cluster.Instance
	// device is the GPU of which it has a share.
	device string
	// namespace and uid are the pod's, version that of its state that was seen
	// last; pod is nil before the watch has shown it.
	namespace string
	uid       types.UID
	version   uint64
	pod       *corev1.Pod
	// changed is closed when there is something new.
	changed chan struct{}
	// stopping: we were asked to stop it. resizing: its share is being changed, and
	// who does that says what it is.
	stopping, resizing bool
}

func (b *Backend) newEntry(in cluster.Instance, namespace string) *entry {
	return &entry{
		backend: b, instance: in, namespace: namespace,
		begun: make(chan struct{}), gone: make(chan struct{}), changed: make(chan struct{}),
	}
}

// touch tells who waits that there is something new. The lock is held.
func (e *entry) touch() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// New returns a backend that knows the cluster's nodes and the instances on them. It
// returns an error if that is not known before ctx ends, with what the API server
// said.
func New(ctx context.Context, options Options) (*Backend, error) {
	options, selector, err := options.complete()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		options: options, selector: selector,
		log:    options.Logger.With().Str("component", "cluster/kubernetes").Logger(),
		prober: newProber(options.Dial),
		events: newQueue(),
		writes: make(writes, options.Parallel),

		entries: map[cluster.InstanceID]*entry{},
		over:    map[cluster.InstanceID]time.Time{},
		strange: map[types.UID]bool{},
		fleet:   fleet{generation: 1, nodes: map[string]*nodes.Node{}, doubted: map[string]bool{}, instances: map[string]map[*entry]bool{}, tolerated: map[string][]corev1.Toleration{}, eligible: map[string]*answer{}},
	}
	b.meter = newUsageMeter(options.Metrics, b.log, options.Now)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if err := b.watch(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.background(func() { b.events.run(b.ctx) })
	nodeWatch{b}.check()
	return b, nil
}

// background runs f, unless the backend is closed; Close waits for it.
func (b *Backend) background(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begin(f)
}

// begin is background with the lock held.
func (b *Backend) begin(f func()) {
	if !b.closed {
		b.work.Go(f)
	}
}

// Instances lists the instances that exist, the oldest first, whichever replica of
// the provider started them. Events tells of changes after the first call.
func (b *Backend) Instances(context.Context) ([]cluster.Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	b.announced = true
	var instances []cluster.Instance
	for _, e := range b.entries {
		if isClosed(e.begun) {
			instances = append(instances, e.instance)
		}
	}
	slices.SortFunc(instances, func(a, b cluster.Instance) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.ID, b.ID))
	})
	return instances, nil
}

// Events delivers the states of every instance, in order per instance, those of
// instances that another replica of the provider has started included, which begin
// with Starting. That an instance was resized or parked is told, too. The channel is
// closed by Close.
func (b *Backend) Events() <-chan cluster.Instance { return b.events.out }

// tell queues an event. The lock is held.
func (b *Backend) tell(in cluster.Instance) {
	if b.announced {
		b.events.push(in)
	}
}

// Usage is what the cluster's metrics server said last of an instance.
func (b *Backend) Usage(ctx context.Context, id cluster.InstanceID) (cluster.Resources, error) {
	e, err := b.find(id)
	if err != nil {
		return cluster.Resources{}, err
	}
	if e == nil {
		return cluster.Resources{}, noInstance("usage of", id)
	}
	return b.meter.Of(ctx, e.namespace, string(id)), nil
}

// Close lets go of the instances without stopping them.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.work.Wait()
	return nil
}

// find returns an instance's entry, nil if there is none.
func (b *Backend) find(id cluster.InstanceID) (*entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	return b.entries[id], nil
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}
