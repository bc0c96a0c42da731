// Package kubernetes runs instances as pods of a cluster: one pod for each instance, on
// the node and with the share that the scaling engine chose. It does not decide either;
// the cluster's scheduler and kubelets still check both.
//
// The backend watches pods and nodes and polls nothing. The pods are the state: every
// replica of the provider that watches them knows the same, and a restarted one finds
// the running instances. If a pod of an exited instance appears again, because a watch
// was interrupted or delivered old data, the backend deletes it.
//
// Begin reading at [Backend], then Start, podSeen and await.
package kubernetes

import (
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
	"github.com/faas-infer/faas-infer/cluster/events"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
)

var (
	// ErrClosed means that the backend was closed.
	ErrClosed = errors.New("the backend is closed")
	// ErrNoResize means that the cluster cannot change the resources of a running pod.
	ErrNoResize = errors.New("the cluster cannot resize running pods: upgrade to Kubernetes 1.33 or later")
)

// Backend runs instances on a Kubernetes cluster. It is a [cluster.Backend].
type Backend struct {
	options  Options
	log      zerolog.Logger
	selector labels.Selector
	prober   *prober
	meter    *usageMeter
	events   *events.Queue
	writes   writes
	// noResize logs once that the cluster cannot resize pods, forbidden that the provider may not.
	noResize, forbidden sync.Once

	// ctx ends with Close; work counts the goroutines in the background.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// announced: Instances was called, so changes are now sent as events.
	announced bool
	entries   map[cluster.InstanceID]*entry
	// exited holds when each exited instance was reported to have exited.
	exited map[cluster.InstanceID]time.Time
	// unreadable holds pods that are labelled as instances but cannot be read as such.
	// Each is logged once.
	unreadable map[types.UID]bool
	fleet      fleet
	// written is the instances' certificate in the namespaces with instances, guarded by mu.
	written map[string]*certificate
	// refusals holds which nodes and namespaces do not take which functions' pods.
	refusals nodes.Refusals
}

var _ cluster.Backend = (*Backend)(nil)

// entry is one instance.
type entry struct {
	backend *Backend
	// begun is closed once its pod exists, gone once nothing of it is left.
	begun, gone chan struct{}

	// Backend.mu guards the fields below.
	instance cluster.Instance
	// device is the UUID of the GPU of which it has a share.
	device string
	// namespace and uid are the pod's. version is the resource version that was seen
	// last. pod is nil until the watch has shown it.
	namespace string
	uid       types.UID
	version   uint64
	pod       *corev1.Pod
	// beside is what the pod takes of its node in addition to the instance's own share.
	beside cluster.Resources
	// changed is closed, and replaced, at every change.
	changed chan struct{}
	// boost is the CPU in millicores that the pod has until the instance is ready, 0 for that of its config.
	boost int
	// stopping: Stop was called. resizing: Resize or Park is changing its share and
	// sets the share in instance when done.
	stopping, resizing bool
}

func (b *Backend) newEntry(in cluster.Instance, namespace string) *entry {
	return &entry{
		backend: b, instance: in, namespace: namespace,
		begun: make(chan struct{}), gone: make(chan struct{}), changed: make(chan struct{}),
	}
}

// notify wakes the goroutines that wait for a change. The lock is held.
func (e *entry) notify() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// New returns a backend that knows the cluster's nodes and the instances on them. If
// it cannot learn them before ctx ends, it returns an error with the API server's
// answer.
func New(ctx context.Context, options Options) (*Backend, error) {
	options, selector, err := options.complete()
	if err != nil {
		return nil, err
	}
	b := &Backend{
		options: options, selector: selector,
		log:    options.Logger.With().Str("component", "cluster/kubernetes").Logger(),
		prober: newProber(options.Dial),
		events: events.NewQueue(),
		writes: make(writes, options.Parallel),

		entries:    map[cluster.InstanceID]*entry{},
		exited:     map[cluster.InstanceID]time.Time{},
		unreadable: map[types.UID]bool{},
		fleet:      fleet{generation: 1, nodes: map[string]*nodes.Node{}, suspect: map[string]bool{}, instances: map[string]map[*entry]bool{}, tolerated: map[string][]corev1.Toleration{}, eligible: map[string]*answer{}},
	}
	b.meter = newUsageMeter(options.Metrics, b.log, options.Now)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if lacksResize(options.Client) {
		b.fleet.refuse(anyNode, refusal{ErrNoResize, options.Now()})
	}
	err = b.watch(ctx)
	if err == nil {
		err = claimWatch{b}.open(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.background(func() { b.events.Run(b.ctx) })
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

// Instances lists the instances that exist, the oldest first, including those that
// other replicas of the provider started. After the first call, Events delivers changes.
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
	slices.SortFunc(instances, cluster.CompareAge)
	return instances, nil
}

// Events delivers the states of every instance, in order per instance. It includes
// instances that another replica of the provider started; these begin with Starting.
// Resizing and parking are events, too. Close closes the channel.
func (b *Backend) Events() <-chan cluster.Instance { return b.events.Out() }

// emit queues an event. The lock is held.
func (b *Backend) emit(in cluster.Instance) {
	if b.announced {
		b.events.Push(in)
	}
}

// Usage returns the metrics server's last figures of an instance.
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

// Close releases the instances without stopping them.
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
