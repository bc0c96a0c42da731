// Package nodeagent publishes the GPUs of one node of a cluster and runs the MPS daemons
// that share them, one for each GPU. It does not decide which instance gets which GPU; package gpu does.
// Begin reading at [Agent.Run].
package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
)

// manager is the field manager of the agent's writes.
const manager = "faas-infer-node"

// Agent publishes a node's GPUs and runs their MPS daemons.
type Agent struct {
	Client kubernetes.Interface
	// Node is the node's name.
	Node string
	// Read reads the inventory from the driver.
	Read func() (gpu.Inventory, error)
	// Watch reports GPUs that fail, until its context ends; nil if nobody does.
	Watch func(context.Context, device.WatchOptions) error
	// Devices are indexes or UUIDs of the GPUs to share, all if empty.
	Devices []string
	// Plugin: share the GPUs that NVIDIA's device plugin gave to the agent's container, and no
	// others. Visible is the value of [gpu.VisibleEnv], which names them.
	Plugin  bool
	Visible string
	// RuntimeClass is published as the one with which instances reach their GPU.
	RuntimeClass string
	// Share: share the GPUs. If false, the agent only publishes them.
	Share bool
	// MPS says how daemons run; the agent fills in the device of each ([device.MPSOptions.Of]).
	MPS device.MPSOptions
	// User is whose server each daemon starts ahead, because instances run as that user; 0 for none.
	User int
	// SharedMemory is the directory on the node that is /dev/shm for daemons and
	// for instances; "" for the node's own.
	SharedMemory string
	// Every is the time between two checks of driver and daemons.
	Every time.Duration
	Log   zerolog.Logger

	// daemons are those of the GPUs that are shared, by UUID; nil before the first look for MPS. withoutMPS
	// says why there can be none, "" if there can: GPUs are given out whole then. offers: some were given out, and
	// instances may have them.
	daemons    map[string]*daemon
	withoutMPS string
	offers     bool
	// seen are the GPUs that the driver has listed, by UUID.
	seen map[string]gpu.Device
	// losses are the GPUs that have failed; nil before Run.
	losses *losses
	// logged is the inventory that was logged last; each is logged once.
	logged string
}

// losses are the GPUs that Watch has reported.
type losses struct {
	// watched: Watch has been called; watching is its goroutine. changed wakes the agent.
	watched  bool
	watching sync.WaitGroup
	changed  chan struct{}
	mu       sync.Mutex
	// why has why GPUs have failed, by UUID.
	why map[string]string
}

// wakeUp wakes the agent.
func (l *losses) wakeUp() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// mark says of the GPUs that have failed why.
func (l *losses) mark(devices []gpu.Device) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range devices {
		if why, ok := l.why[devices[i].UUID]; ok {
			devices[i].Lost = why
		}
	}
}

// Check refuses invalid options. Its errors name the command's flags.
func (a *Agent) Check() error {
	switch {
	case a.Node == "":
		return errors.New("--name is missing: give this node's name (in a pod, set NODE_NAME from spec.nodeName)")
	case !filepath.IsAbs(a.MPS.Directory):
		return fmt.Errorf("--directory is %q: it must be an absolute path", a.MPS.Directory)
	case a.SharedMemory != "" && !filepath.IsAbs(a.SharedMemory):
		return fmt.Errorf("--shared-memory is %q: it must be an absolute path", a.SharedMemory)
	case a.Plugin && len(a.Devices) > 0:
		return errors.New("--devices and --device-plugin exclude each other: with --device-plugin, the device plugin names the GPUs")
	case a.User < 0:
		return fmt.Errorf("--instance-user is %d: it must be the number of the user as which instances run, or 0 for none", a.User)
	case a.Every < time.Second:
		return fmt.Errorf("--every is %v: it must be at least 1s", a.Every)
	}
	return nil
}

// Run keeps the annotation and the daemons until ctx ends.
func (a *Agent) Run(ctx context.Context) (err error) {
	if a.SharedMemory != "" {
		// As in /dev/shm, every user may write there and remove only their own files.
		if err := errors.Join(os.MkdirAll(a.SharedMemory, 0o755), os.Chmod(a.SharedMemory, os.ModeSticky|0o777)); err != nil {
			return fmt.Errorf("--shared-memory: %w", err)
		}
	}
	if _, err := a.Client.CoreV1().Nodes().Get(ctx, a.Node, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("node %s: %w", a.Node, err)
	}
	a.losses = &losses{changed: make(chan struct{}, 1), why: map[string]string{}}
	node, stop := a.follow(ctx)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer a.losses.watching.Wait()
	defer cancel()
	defer func() { err = errors.Join(err, a.end()) }()
	tick := time.Tick(a.Every)
	for {
		if n := node(); n != nil {
			if err := a.reconcile(ctx, n); err != nil && ctx.Err() == nil {
				a.Log.Error().Err(err).Msg("cannot publish the node's GPUs")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.losses.changed:
		case <-tick:
		}
	}
}

// follow follows the agent's node. node returns its last known state, or nil.
func (a *Agent) follow(ctx context.Context) (node func() *corev1.Node, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(a.Client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.Node).String()
	}))
	informer := factory.Core().V1().Nodes()
	_, _ = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{ // It fails only for a stopped informer.
		AddFunc:    func(any) { a.losses.wakeUp() },
		UpdateFunc: func(_, _ any) { a.losses.wakeUp() },
	})
	factory.Start(ctx.Done())
	return func() *corev1.Node {
			n, err := informer.Lister().Get(a.Node)
			if err != nil {
				return nil
			}
			return n
		}, func() {
			cancel()
			factory.Shutdown()
		}
}

// reconcile updates the daemons and the annotation to the present state of the machine and
// the node.
func (a *Agent) reconcile(ctx context.Context, node *corev1.Node) error {
	return a.publish(ctx, node, a.inventory(ctx, node))
}

// inventory returns what the node has to give now. It starts the daemons that are needed.
func (a *Agent) inventory(ctx context.Context, node *corev1.Node) gpu.Inventory {
	i, err := a.read(node)
	if err != nil {
		i.Sharing, i.Reason = gpu.None, err.Error()
		a.offers = a.offers && !none(err) // Instances go on if the GPUs may still work.
		return i
	}
	i = a.allocate(ctx, node, i)
	// While sharing is withdrawn, instances go on.
	a.offers = a.offers || len(i.Usable()) > 0
	return i
}

// allocate decides how the GPUs that were read are given out, and starts their daemons.
func (a *Agent) allocate(ctx context.Context, node *corev1.Node, i gpu.Inventory) gpu.Inventory {
	a.findMPS()
	if a.losses != nil {
		a.watch(ctx, i.Devices)
		a.losses.mark(i.Devices)
	}
	i, err := a.only(i)
	if err != nil {
		i.Sharing, i.Reason = gpu.None, err.Error()
		return i
	}
	if !a.Share {
		return withdrawn(i, gpu.None, "sharing is turned off (--share=false)")
	}
	i.Claimed = a.Plugin
	if sharing, why := i.Offer(nodes.Whole(node)); sharing != gpu.MPS {
		// Running daemons stay, because instances compute through them.
		return withdrawn(i, sharing, why)
	}
	i.Sharing = gpu.MPS
	a.share(ctx, i.Devices)
	if all := i.Usable(); !slices.ContainsFunc(all, func(d gpu.Device) bool { return d.Lost == "" }) {
		return withdrawn(i, gpu.None, "none of its GPUs works: "+all[0].UUID+": "+all[0].Lost)
	}
	i.SharedMemory, i.RuntimeClass = a.SharedMemory, a.RuntimeClass
	return i
}

// withdrawn is an inventory of which instances use nothing, and why.
func withdrawn(i gpu.Inventory, sharing gpu.Sharing, why string) gpu.Inventory {
	i.Sharing, i.Reason, i.Claimed = sharing, why, false
	for n := range i.Devices {
		i.Devices[n].Whole = false
	}
	return i
}

// read reads the inventory from the driver. A GPU that the driver does not list any more, because it has
// fallen off the bus or was removed, is listed as lost, so that the provider gives up its instances: as it
// was seen before, by this agent or by the one that wrote the node's annotation. The error says why there
// is none that can be used; if the driver has not listed all, nothing new is said of the rest.
func (a *Agent) read(node *corev1.Node) (i gpu.Inventory, err error) {
	i, err = a.Read()
	i.Devices = append([]gpu.Device{}, i.Devices...)
	if a.seen == nil {
		a.seen = map[string]gpu.Device{}
		// Nothing is known of one that cannot be read.
		before, _ := gpu.Parse(node.Annotations[gpu.InventoryAnnotation])
		for _, d := range before.Devices {
			a.seen[d.UUID] = d
		}
	}
	present := map[string]bool{}
	for _, d := range i.Devices {
		present[d.UUID], a.seen[d.UUID] = true, d
	}
	why, listed := i.Reason, err == nil
	if none(err) {
		why, listed = err.Error(), true
	}
	for _, uuid := range slices.Sorted(maps.Keys(a.seen)) {
		d := a.seen[uuid]
		if present[uuid] {
			continue
		}
		if listed && d.Parent != "" && present[d.Parent] {
			delete(a.seen, uuid) // A MIG instance that was removed. The driver removes none that is in use.
			continue
		}
		if d.Whole, d.PipeDirectory = false, ""; listed {
			d.Gone, d.Lost = true, strings.TrimSuffix("the driver does not list it any more: "+why, ": ")
		}
		i.Devices = append(i.Devices, d)
	}
	return i, err
}

// none reports whether an error of Read says that no GPU works. A missing library does not: the agent's
// container may lack it (wrong runtime class) on a node whose driver works.
func none(err error) bool {
	return errors.Is(err, nvml.ERROR_GPU_IS_LOST) || errors.Is(err, gpu.ErrNone) && !errors.Is(err, nvml.ERROR_LIBRARY_NOT_FOUND)
}

// watch begins to watch the GPUs, once.
func (a *Agent) watch(ctx context.Context, devices []gpu.Device) {
	l := a.losses
	if a.Watch == nil || l.watched {
		return
	}
	l.watched = true
	devices = slices.Clone(devices) // The caller goes on with its own.
	l.watching.Go(func() {
		err := a.Watch(ctx, device.WatchOptions{
			Devices: devices, Every: a.Every,
			Lost: func(uuid, why string) {
				a.Log.Error().Str("gpu", uuid).Str("why", why).Msg("a GPU is lost; restart the agent's pod when it works again")
				l.mu.Lock()
				l.why[uuid] = why
				l.mu.Unlock()
				l.wakeUp()
			},
			Note: func(uuid, what string) { a.Log.Warn().Str("gpu", uuid).Msg(what) },
		})
		if err != nil {
			a.Log.Error().Err(err).Msg("GPUs that fail are not noticed")
		}
	})
}

// only makes the GPUs unshareable that are not the agent's to share. Of its own, those that cannot be
// shared, such as MIG instances, are given out whole.
func (a *Agent) only(i gpu.Inventory) (gpu.Inventory, error) {
	names := a.Devices
	if a.Plugin {
		var err error
		if names, err = gpu.Given(a.Visible); err != nil {
			return i, err
		}
	}
	chosen, err := device.Select(i, names)
	if err == nil {
		i, err = device.Only(i, names)
	}
	if err != nil {
		return i, err
	}
	own := map[string]bool{}
	for _, d := range chosen.Devices {
		own[d.UUID] = true
	}
	for n := range i.Devices {
		d := &i.Devices[n]
		d.Unshareable = cmp.Or(d.Unshareable, a.withoutMPS)
		d.Whole = own[d.UUID] && d.Unshareable != "" && !d.Divided
	}
	return i, nil
}

// due returns the annotation to write, "" if the node has it: it differs, or its heartbeat is old.
func due(has string, i gpu.Inventory, now time.Time) string {
	last, err := gpu.Parse(has)
	age := now.Sub(last.Alive)
	if i.Alive = last.Alive; err == nil && i.String() == has && age >= 0 && age < gpu.Heartbeat {
		return ""
	}
	i.Alive = now.UTC().Truncate(time.Second)
	return i.String()
}

// publish writes the annotation if it differs, and at every heartbeat.
func (a *Agent) publish(ctx context.Context, node *corev1.Node, i gpu.Inventory) error {
	text := i.String()
	if a.logged != text {
		a.logged = text
		a.Log.Info().Int("gpus", len(i.Devices)).Str("sharing", string(i.Sharing)).Str("reason", i.Reason).Msg("this node's GPUs")
	}
	if text = due(node.Annotations[gpu.InventoryAnnotation], i, time.Now()); text == "" {
		return nil
	}
	apply := applycorev1.Node(a.Node).WithAnnotations(map[string]string{gpu.InventoryAnnotation: text})
	_, err := a.Client.CoreV1().Nodes().Apply(ctx, apply, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("annotate node %s: %w: give the service account the verb patch on nodes", a.Node, err)
	}
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", a.Node, err)
	}
	return nil
}

// endTime is how long the last write to the API server may take. Together with the time
// in which daemons stop, it is less than a pod's default grace period.
const endTime = 15 * time.Second

// end publishes that nothing is shared any more, and then stops the daemons.
func (a *Agent) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	return errors.Join(a.publish(ctx, &corev1.Node{}, a.last()), a.stop())
}

// last is what the node has to give once the agent has ended. The device plugin may then give its GPUs to
// another pod, so those that instances have whole are lost, as those with a daemon are.
func (a *Agent) last() gpu.Inventory {
	i, _ := a.read(&corev1.Node{}) // What cannot be read is listed as it was.
	if own, err := a.only(i); err == nil && a.Plugin {
		for n := range own.Devices {
			if d := &own.Devices[n]; d.Whole || d.Unshareable == "" {
				d.Lost = cmp.Or(d.Lost, "the node agent has ended, and the device plugin may give it to another pod")
			}
		}
		i = own
	}
	return withdrawn(i, gpu.None, "the node agent has ended")
}
