// Package claims allocates GPUs by Kubernetes' dynamic resource allocation (DRA,
// resource.k8s.io/v1), so that no other pod is given a GPU of which instances have shares.
// [Book] knows which GPUs NVIDIA's DRA driver has and which claims hold them. [Claim] is the
// claim of one GPU, which all instances with a share of it reference; Kubernetes' scheduler
// allocates it with the first of them. The package is pure; the backend watches and creates the
// objects. Begin reading at [Book].
package claims

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

const (
	// Driver is NVIDIA's DRA driver, by whose name its GPUs have their attributes.
	Driver = "gpu.nvidia.com"
	// wholeClass and migClass are the driver's device classes.
	wholeClass, migClass = "gpu.nvidia.com", "mig.nvidia.com"
	// uuidAttribute is the device's attribute with its UUID.
	uuidAttribute = "uuid"
	// request is the name of the only request of a claim.
	request = "gpu"
)

// place identifies a device of the driver.
type place struct{ pool, device string }

// found is a device in a slice.
type found struct {
	place
	node, taint string
	// gpu describes a whole GPU of which the driver says the model, otherwise it has no model.
	gpu gpu.Device
}

// Book knows the driver's devices and the claims that hold them. Its zero value is empty. It is
// not safe for concurrent use.
type Book struct {
	slices map[string]slice
	claims map[string]claim
	// devices, whole and holders are indexes, nil if they are outdated: the devices by UUID, whole GPUs by
	// node, and the claims that hold each.
	devices map[string]found
	whole   map[string][]gpu.Device
	holders map[place][]string
}

// slice is what counts of a ResourceSlice: its devices by UUID.
type slice struct {
	pool       string
	generation int64
	devices    map[string]found
}

// claim is what counts of a ResourceClaim: what it holds, and for which UUID it is ours.
type claim struct {
	namespace, uuid string
	holds           []place
}

func (c claim) same(o claim) bool {
	return c.namespace == o.namespace && c.uuid == o.uuid && slices.Equal(c.holds, o.holds)
}

// PutSlice takes in a slice's state.
func (b *Book) PutSlice(s *resourcev1.ResourceSlice) {
	b.DeleteSlice(s.Name)
	if s.Spec.Driver != Driver || s.Spec.NodeName == nil {
		return
	}
	in := slice{s.Spec.Pool.Name, s.Spec.Pool.Generation, map[string]found{}}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		if uuid := attribute(d, uuidAttribute); uuid != "" {
			in.devices[uuid] = found{place{in.pool, d.Name}, *s.Spec.NodeName, tainted(d), whole(d, uuid)}
		}
	}
	if b.slices == nil {
		b.slices = map[string]slice{}
	}
	b.slices[s.Name], b.devices = in, nil
}

// attribute returns a text or version that the driver says of a device, "" if it does not.
func attribute(d *resourcev1.Device, name string) string {
	a, ok := d.Attributes[resourcev1.QualifiedName(Driver+"/"+name)]
	if !ok {
		a = d.Attributes[resourcev1.QualifiedName(name)]
	}
	switch {
	case a.StringValue != nil:
		return *a.StringValue
	case a.VersionValue != nil:
		return *a.VersionValue
	}
	return ""
}

// whole describes a device, without a model if it is no whole GPU.
func whole(d *resourcev1.Device, uuid string) gpu.Device {
	if kind := attribute(d, "type"); kind != "" && kind != "gpu" {
		return gpu.Device{}
	}
	out := gpu.Device{UUID: uuid, Model: attribute(d, "productName"), Driver: attribute(d, "driverVersion"),
		Dedicated: true, Whole: true, Unshareable: "no node agent shares it"}
	for _, name := range []resourcev1.QualifiedName{"memory", Driver + "/memory"} {
		if memory, ok := d.Capacity[name]; ok {
			out.Memory = memory.Value.Value()
		}
	}
	return out
}

// Whole lists the driver's whole GPUs of a node of which it says the model, by UUID. A nil Book has none.
func (b *Book) Whole(node string) []gpu.Device {
	if b == nil {
		return nil
	}
	b.index()
	return b.whole[node]
}

// DeleteSlice forgets a slice.
func (b *Book) DeleteSlice(name string) {
	delete(b.slices, name)
	b.devices = nil
}

// tainted returns the taint that keeps pods off a device, "" if there is none.
func tainted(d *resourcev1.Device) string {
	for _, t := range d.Taints {
		if t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute {
			return fmt.Sprintf("%s=%s:%s", t.Key, t.Value, t.Effect)
		}
	}
	return ""
}

// PutClaim takes in a claim's state, and reports whether that changes who holds what. The pods
// that use a claim come and go often.
func (b *Book) PutClaim(c *resourcev1.ResourceClaim) (changed bool) {
	key, in := c.Namespace+"/"+c.Name, claim{namespace: c.Namespace}
	if c.Status.Allocation != nil {
		for _, r := range c.Status.Allocation.Devices.Results {
			if r.Driver == Driver && (r.AdminAccess == nil || !*r.AdminAccess) {
				in.holds = append(in.holds, place{r.Pool, r.Device})
			}
		}
	}
	if c.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy {
		in.uuid = c.Annotations[gpu.DeviceAnnotation]
	}
	if before, ok := b.claims[key]; ok && before.same(in) {
		return false
	}
	if b.claims == nil {
		b.claims = map[string]claim{}
	}
	b.claims[key], b.holders = in, nil
	return true
}

// DeleteClaim forgets a claim.
func (b *Book) DeleteClaim(namespace, name string) {
	delete(b.claims, namespace+"/"+name)
	b.holders = nil
}

// index makes the indexes. Of the slices of a pool, those of the latest generation count.
func (b *Book) index() {
	if b.devices == nil {
		b.devices = map[string]found{}
		latest := map[string]int64{}
		for _, s := range b.slices {
			latest[s.pool] = max(latest[s.pool], s.generation)
		}
		for _, s := range b.slices {
			if s.generation == latest[s.pool] {
				maps.Copy(b.devices, s.devices)
			}
		}
		b.whole = map[string][]gpu.Device{}
		for _, uuid := range slices.Sorted(maps.Keys(b.devices)) {
			if d := b.devices[uuid]; d.gpu.Model != "" {
				b.whole[d.node] = append(b.whole[d.node], d.gpu)
			}
		}
	}
	if b.holders == nil {
		b.holders = map[place][]string{}
		for _, key := range slices.Sorted(maps.Keys(b.claims)) {
			for _, p := range b.claims[key].holds {
				b.holders[p] = append(b.holders[p], key)
			}
		}
	}
}

// Has reports whether the driver has this GPU on the node. A nil Book has none.
func (b *Book) Has(node, uuid string) bool {
	if b == nil {
		return false
	}
	b.index()
	d, ok := b.devices[uuid]
	return ok && d.node == node
}

// Claimed reports whether the GPU's claim exists in the namespace.
func (b *Book) Claimed(namespace, uuid string) bool {
	return b.claims[namespace+"/"+Name(uuid)].uuid == uuid
}

// Withheld says why instances in a namespace cannot have a share of the GPU, "" if they can. The
// namespace "" stands for those that have an instance on it already, or else for any.
func (b *Book) Withheld(node, uuid, namespace string) string {
	if !b.Has(node, uuid) {
		return ""
	}
	d := b.devices[uuid]
	if d.taint != "" {
		return "the driver has set the taint " + d.taint + " on it"
	}
	for _, key := range b.holders[d.place] {
		switch c := b.claims[key]; {
		case c.uuid != uuid:
			return "the ResourceClaim " + key + " holds it"
		case namespace != "" && c.namespace != namespace:
			return OneNamespace(c.namespace)
		}
	}
	return ""
}

// Holder returns the namespace of the claim of ours that holds the GPU, "" if none does.
func (b *Book) Holder(uuid string) string {
	b.index()
	for _, key := range b.holders[b.devices[uuid].place] {
		if c := b.claims[key]; c.uuid == uuid {
			return c.namespace
		}
	}
	return ""
}

// OneNamespace says why a GPU of which instances in one namespace have shares cannot be used in
// another.
func OneNamespace(namespace string) string {
	return "instances in the namespace " + namespace + " have it, and a ResourceClaim serves pods of one namespace"
}

// Name returns the name of a GPU's claim, which is a DNS label.
func Name(uuid string) string {
	return "faas-infer-" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(uuid))
}

// Claim returns the claim of a GPU in a namespace. The node owns it: Kubernetes deletes it with
// the node. It asks for exactly one device, the one with that UUID.
func Claim(namespace, uuid, node string, owner types.UID) *resourcev1.ResourceClaim {
	class := wholeClass
	if strings.HasPrefix(uuid, "MIG-") {
		class = migClass
	}
	attributes := `device.attributes["` + Driver + `"]`
	expression := fmt.Sprintf("device.driver == %q && has(%s.%s) && %s.%s == %s", Driver, attributes, uuidAttribute, attributes, uuidAttribute, strconv.Quote(uuid))
	return &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: Name(uuid), Namespace: namespace,
			Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy},
			Annotations: map[string]string{gpu.DeviceAnnotation: uuid},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node, UID: owner,
			}},
		},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: request,
			Exactly: &resourcev1.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
				Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}},
			},
		}}}},
	}
}

// Check returns an error if an existing claim with our name asks for something else: it was not
// made by this package, and pods that reference it would get another device.
func Check(existing, want *resourcev1.ResourceClaim) error {
	has, needs := existing.Spec.Devices.Requests, want.Spec.Devices.Requests
	if len(has) == 1 && has[0].Exactly != nil && has[0].Exactly.DeviceClassName == needs[0].Exactly.DeviceClassName && has[0].Exactly.Count == 1 &&
		len(has[0].Exactly.Selectors) == 1 && has[0].Exactly.Selectors[0].CEL != nil &&
		has[0].Exactly.Selectors[0].CEL.Expression == needs[0].Exactly.Selectors[0].CEL.Expression {
		return nil
	}
	return fmt.Errorf("the ResourceClaim %s/%s does not ask for the GPU %s alone: delete it, and the provider makes it again", existing.Namespace, existing.Name, want.Annotations[gpu.DeviceAnnotation])
}
