package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/claims"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

// claimWatch follows who has the nodes' GPUs: the claims of NVIDIA's DRA driver, and instances. It makes
// the claims of the GPUs that instances have.
type claimWatch struct{ *Backend }

// driverOnly selects the driver's slices.
func driverOnly(o *metav1.ListOptions) {
	o.FieldSelector = fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, claims.Driver).String()
}

// open begins to follow slices and claims, if the cluster serves resource.k8s.io/v1 and the
// provider may read them. Otherwise shares are given without claims.
func (b claimWatch) open(ctx context.Context) error {
	allowed, err := b.possible(ctx)
	if err != nil || !allowed {
		return err
	}
	var book claims.Book
	b.mu.Lock()
	b.fleet.claims = &book
	b.mu.Unlock()
	var why failures
	slices, err := b.follow(resourceinformers.NewFilteredResourceSliceInformer(b.options.Client, 0, cache.Indexers{}, driverOnly),
		"resourceslices", &why, nil, b.handler(func(o any) bool {
			book.PutSlice(o.(*resourcev1.ResourceSlice))
			return true
		}, func(_, name string) { book.DeleteSlice(name) }))
	if err != nil {
		return err
	}
	held, err := b.follow(resourceinformers.NewResourceClaimInformer(b.options.Client, metav1.NamespaceAll, 0, cache.Indexers{}),
		"resourceclaims", &why, nil, b.handler(func(o any) bool { return book.PutClaim(o.(*resourcev1.ResourceClaim)) }, book.DeleteClaim))
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), slices, held) {
		return fmt.Errorf("cannot read the cluster's claims of devices: %w", why.last())
	}
	return nil
}

// possible reports whether the cluster has the API and the provider may use it. Without the
// rights, it logs that.
func (b claimWatch) possible(ctx context.Context) (bool, error) {
	const version = "resource.k8s.io/v1"
	api := b.options.Client.ResourceV1()
	one := metav1.ListOptions{Limit: 1}
	err := attempt(ctx, func(ctx context.Context) error {
		if _, err := b.options.Client.Discovery().ServerResourcesForGroupVersion(version); err != nil {
			return err
		}
		if _, err := api.ResourceSlices().List(ctx, one); err != nil {
			return err
		}
		_, err := api.ResourceClaims(metav1.NamespaceAll).List(ctx, one)
		return err
	})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		b.log.Warn().Err(err).Msg("GPUs are given without ResourceClaims, and those of a DRA driver only where the node agent runs: give the provider the rights on resource.k8s.io that yaml/rbac.yaml and the chart have")
		return false, nil
	}
	return false, fmt.Errorf("find out whether the cluster has %s: %w", version, err)
}

// handler passes objects to put and remove, with the lock held.
func (b claimWatch) handler(put func(any) bool, remove func(namespace, name string)) cache.ResourceEventHandlerFuncs {
	seen := func(o any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if put(o) {
			b.fleet.offers = nil
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, o any) { seen(o) },
		DeleteFunc: func(o any) {
			b.mu.Lock()
			defer b.mu.Unlock()
			namespace, name, err := cache.SplitMetaNamespaceKey(key(o))
			if err == nil {
				remove(namespace, name)
				b.fleet.offers = nil
			}
		},
	}
}

// inventory returns a node's GPUs: the agent's, and those that NVIDIA's device plugin or DRA driver gives out to
// containers without the agent. The lock is held.
func (f *fleet) inventory(n *nodes.Node) gpu.Inventory {
	i := n.GPUs
	i.Devices = slices.Concat(i.Devices, n.Dedicated)
	for _, d := range f.claims.Whole(n.Name) {
		if !slices.ContainsFunc(n.GPUs.Devices, func(o gpu.Device) bool { return o.UUID == d.UUID }) {
			i.Devices = append(i.Devices, d)
		}
	}
	return i
}

// gpus returns a node's GPUs. Those of which no new instance in the namespace can have a share are
// marked as lost; the namespace "" stands for any. The lock is held.
func (f *fleet) gpus(n *nodes.Node, namespace string) gpu.Inventory {
	i := f.inventory(n)
	if len(i.Devices) == 0 {
		return i
	}
	held := map[string]bool{}
	for e := range f.instances[n.Name] {
		if gpu.IsGranted(e.device) {
			held[e.device] = true
		}
	}
	nodes.Withhold(i.Devices, max(0, f.ledger.GPUs(n.Name)-n.AgentHas), held)
	if f.claims == nil {
		return i
	}
	for at := range i.Devices {
		d := &i.Devices[at]
		if d.Lost == "" {
			d.Lost = f.claims.Withheld(n.Name, d.UUID, namespace)
		}
	}
	if namespace == "" {
		return i
	}
	// The scheduler may not have allocated the claims of instances that have just been started.
	for e := range f.instances[n.Name] {
		at := slices.IndexFunc(i.Devices, func(d gpu.Device) bool { return d.UUID == e.device })
		if at >= 0 && i.Devices[at].Lost == "" && e.namespace != namespace && f.claims.Has(n.Name, e.device) {
			i.Devices[at].Lost = claims.OneNamespace(e.namespace)
		}
	}
	return i
}

// claimed says of a node's GPUs which of them are claimed, and for instances in which namespace. The lock
// is held.
func (f *fleet) claimed(node string, rooms []cluster.DeviceRoom) []cluster.DeviceRoom {
	for i := range rooms {
		d := &rooms[i]
		if d.Claimed = f.claims.Has(node, d.UUID); !d.Claimed {
			continue
		}
		d.Namespace = f.claims.Holder(d.UUID)
		for e := range f.instances[node] { // Of those just started the claim may not be allocated yet.
			if d.Namespace == "" && e.device == d.UUID {
				d.Namespace = e.namespace
			}
		}
	}
	return rooms
}

// ensureClaim makes the claim of a GPU in an instance's namespace, if there is none.
func (b claimWatch) ensureClaim(ctx context.Context, namespace, device, node string) error {
	b.mu.Lock()
	exists := b.fleet.claims.Claimed(namespace, device)
	b.mu.Unlock()
	if exists {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, createTimeout)
	defer cancel()
	var owner *corev1.Node
	err := attempt(ctx, func(ctx context.Context) (err error) {
		owner, err = b.options.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("claim the GPU %s: node %s: %w", device, node, err)
	}
	api, want := b.options.Client.ResourceV1().ResourceClaims(namespace), claims.Claim(namespace, device, node, owner.UID)
	err = attempt(ctx, func(ctx context.Context) error {
		_, err := api.Create(ctx, want, metav1.CreateOptions{FieldManager: v1alpha1.ManagedBy})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		existing, err := api.Get(ctx, want.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return claims.Check(existing, want)
	})
	if err != nil {
		return fmt.Errorf("claim the GPU %s: %w", device, err)
	}
	return nil
}

// loseDevices gives up the instances on GPUs of a node that are lost, or that its agent does not give out any
// more, such as a MIG instance that the device plugin has given to another pod. The lock is held.
func (b claimWatch) loseDevices(n *nodes.Node) {
	for _, d := range n.GPUs.Devices {
		if d.Lost == "" && n.GPUs.Sharing == gpu.MPS && !d.Whole {
			d.Lost = d.Unshareable
		}
		if d.Lost == "" {
			continue
		}
		for e := range b.fleet.instances[n.Name] {
			if e.device == d.UUID {
				b.begin(func() { e.fail(fmt.Sprintf("GPU %s of node %s is lost: %s", d.UUID, n.Name, d.Lost), removeGrace) })
			}
		}
	}
}

// sayOverfull logs, once for each state, that instances hold more of a GPU than it has. The
// planner cannot cause that; edited objects can. The lock is held.
func (b claimWatch) sayOverfull(n *nodes.Node, devices []cluster.DeviceRoom) {
	for i := range devices {
		d := &devices[i]
		where := n.Name + " " + d.UUID
		if d.Free.GPU >= 0 && d.Free.GPUMemory >= 0 {
			delete(b.fleet.overfull, where)
			continue
		}
		var names []string
		for e := range b.fleet.instances[n.Name] {
			if e.device == d.UUID {
				names = append(names, e.namespace+"/"+string(e.instance.ID))
			}
		}
		slices.Sort(names)
		text := fmt.Sprintf("instances hold %d %% and %d MiB of the GPU %s of node %s, which has %d %% and %d MiB: nothing more starts there; delete one of the pods %s",
			d.Total.GPU-d.Free.GPU, (d.Total.GPUMemory-d.Free.GPUMemory)>>20, d.UUID, n.Name, d.Total.GPU, d.Total.GPUMemory>>20, strings.Join(names, ", "))
		if b.fleet.overfull == nil {
			b.fleet.overfull = map[string]string{}
		}
		if b.fleet.overfull[where] != text {
			b.fleet.overfull[where] = text
			b.log.Warn().Str("node", n.Name).Msg(text)
		}
	}
}
