// Package nodeagent publishes the GPUs of one node of a cluster, and keeps the MPS
// daemon through which they are shared.
package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
)

// manager is the owner of what the agent writes.
const manager = "faas-infer-node"

// Agent publishes a node's GPUs and keeps its MPS daemon.
type Agent struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
	// Read reads the inventory from the driver.
	Read func() (gpu.Inventory, error)
	// Devices are indexes or UUIDs of the GPUs to be shared, all if none are named.
	Devices []string
	// Share: the GPUs are shared, and not published only.
	Share bool
	// MPS says how the daemon runs; its devices are the agent's to fill in.
	MPS device.MPSOptions
	// SharedMemory is the directory on the node that is /dev/shm for the daemon and
	// for instances; "" for the node's own.
	SharedMemory string
	// Every is the time between two looks at driver and daemon.
	Every time.Duration
	Log   zerolog.Logger

	daemon *device.MPSDaemon
	// tried is when the daemon was started last, failed why it does not run.
	tried  time.Time
	failed error
	// said is what was logged last, so that it is said once.
	said string
}

// Check refuses what cannot be, in terms of the command's flags.
func (a *Agent) Check() error {
	switch {
	case a.Node == "":
		return errors.New("--name is missing: it is this node's name (in a pod: NODE_NAME from spec.nodeName)")
	case !filepath.IsAbs(a.MPS.Directory):
		return fmt.Errorf("--directory is %q: it must be an absolute path", a.MPS.Directory)
	case a.SharedMemory != "" && !filepath.IsAbs(a.SharedMemory):
		return fmt.Errorf("--shared-memory is %q: it must be an absolute path", a.SharedMemory)
	case a.Every < time.Second:
		return fmt.Errorf("--every is %v: it must be 1s at least", a.Every)
	}
	return nil
}

// Run keeps the annotation and the daemon until ctx ends.
func (a *Agent) Run(ctx context.Context) (err error) {
	if a.SharedMemory != "" {
		// As /dev/shm: every user may write there, and remove only what is theirs.
		if err := errors.Join(os.MkdirAll(a.SharedMemory, 0o755), os.Chmod(a.SharedMemory, os.ModeSticky|0o777)); err != nil {
			return fmt.Errorf("--shared-memory: %w", err)
		}
	}
	if _, err := a.Client.CoreV1().Nodes().Get(ctx, a.Node, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("node %s: %w", a.Node, err)
	}
	node, changed, stop := a.watch(ctx)
	defer stop()
	defer func() { err = errors.Join(err, a.end()) }()
	tick := time.NewTicker(a.Every)
	defer tick.Stop()
	for {
		if n := node(); n != nil {
			if err := a.reconcile(ctx, n); err != nil && ctx.Err() == nil {
				a.Log.Error().Err(err).Msg("the node's GPUs are not published")
			}
		}
		var exited <-chan struct{}
		if a.daemon != nil {
			exited = a.daemon.Exited()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		case <-exited:
		}
	}
}

// watch follows the one node. node returns what it was last, or nil.
func (a *Agent) watch(ctx context.Context) (node func() *corev1.Node, changed <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(a.Client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.Node).String()
	}))
	informer := factory.Core().V1().Nodes()
	signal := make(chan struct{}, 1)
	poke := func() {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
	_, _ = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{ // It fails for one that was stopped.
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(_, _ any) { poke() },
	})
	factory.Start(ctx.Done())
	return func() *corev1.Node {
			n, err := informer.Lister().Get(a.Node)
			if err != nil {
				return nil
			}
			return n
		}, signal, func() {
			cancel()
			factory.Shutdown()
		}
}

// reconcile brings the daemon and the annotation to what the machine and the node
// are now.
func (a *Agent) reconcile(ctx context.Context, node *corev1.Node) error {
	return a.publish(ctx, node, a.look(ctx, node))
}

// look is what the node has to give now; it starts the daemon where it is needed.
func (a *Agent) look(ctx context.Context, node *corev1.Node) gpu.Inventory {
	i, err := a.Read()
	if err == nil {
		i, err = device.Only(i, a.Devices)
	}
	if err != nil {
		return gpu.Inventory{Devices: []gpu.Device{}, Sharing: gpu.None, Reason: err.Error()}
	}
	if !a.Share {
		i.Sharing, i.Reason = gpu.None, "sharing is turned off (--share=false)"
		return i
	}
	i.Sharing = gpu.MPS
	ours := i.Shareable()
	if i.Sharing, i.Reason = gpu.Offer(len(i.Devices), len(ours), whole(node)); i.Sharing != gpu.MPS {
		// A daemon that runs goes on: instances compute through it.
		return i
	}
	if err := a.keep(ctx, ours); err != nil {
		i.Sharing, i.Reason = gpu.None, err.Error()
		return i
	}
	i.PipeDirectory, i.SharedMemory = a.MPS.Pipes(), a.SharedMemory
	return i
}

// whole is how many GPUs NVIDIA's device plugin hands out on a node, to one container
// each or to several in turn.
func whole(node *corev1.Node) int {
	sum := 0
	for _, name := range []corev1.ResourceName{gpu.WholeResource, gpu.WholeResource + ".shared"} {
		n := node.Status.Allocatable[name]
		sum += int(n.Value())
	}
	return sum
}

// keep has a healthy daemon run for these GPUs. One that does not stay is not started
// more often than once in the time between two looks.
func (a *Agent) keep(ctx context.Context, devices []gpu.Device) error {
	if a.daemon != nil {
		err := a.daemon.Healthy(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		a.failed = errors.Join(err, a.daemon.Stop())
		a.daemon = nil
	}
	if a.failed != nil && time.Since(a.tried) < a.Every {
		return a.failed
	}
	a.tried, a.failed = time.Now(), a.begin(ctx, devices)
	return a.failed
}

// begin starts the daemon.
func (a *Agent) begin(ctx context.Context, devices []gpu.Device) error {
	o := a.MPS
	for _, d := range devices {
		o.Devices = append(o.Devices, d.UUID)
	}
	daemon, err := device.StartMPS(ctx, o)
	if err != nil {
		return err
	}
	a.daemon = daemon
	a.Log.Info().Strs("devices", o.Devices).Str("pipes", o.Pipes()).Msg("the MPS daemon serves")
	return nil
}

// publish writes the annotation if it is not so already.
func (a *Agent) publish(ctx context.Context, node *corev1.Node, i gpu.Inventory) error {
	text := i.String()
	if a.said != text {
		a.said = text
		a.Log.Info().Int("gpus", len(i.Devices)).Str("sharing", string(i.Sharing)).Str("reason", i.Reason).Msg("this node's GPUs")
	}
	if node.Annotations[gpu.InventoryAnnotation] == text {
		return nil
	}
	apply := applycorev1.Node(a.Node).WithAnnotations(map[string]string{gpu.InventoryAnnotation: text})
	_, err := a.Client.CoreV1().Nodes().Apply(ctx, apply, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("annotate node %s: %w: its service account needs the verb patch on nodes", a.Node, err)
	}
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", a.Node, err)
	}
	return nil
}

// endTime is how long the API server may take to hear that: with what the daemon may take
// to leave, less than a pod has for it by default.
const endTime = 15 * time.Second

// end says that nothing is shared any more, and then ends the daemon.
func (a *Agent) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	i, err := a.Read()
	if err != nil {
		i = gpu.Inventory{Devices: []gpu.Device{}}
	}
	i.Sharing, i.Reason = gpu.None, "the node agent has ended"
	err = a.publish(ctx, &corev1.Node{}, i)
	if a.daemon != nil {
		err = errors.Join(err, a.daemon.Stop())
	}
	return err
}
