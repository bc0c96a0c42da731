package backend_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/claims"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

// gpus returns an inventory of shared GPUs with 16 GiB each.
func gpus(uuids ...string) (i gpu.Inventory) {
	i = gpu.Inventory{Sharing: gpu.MPS, PipeDirectory: "/run/mps"}
	for n, uuid := range uuids {
		i.Devices = append(i.Devices, gpu.Device{Index: n, UUID: uuid, Memory: 16 << 30})
	}
	return i
}

// addGPUNode adds a kwok node with GPUs. With dra, NVIDIA's DRA driver publishes them, too.
func (r *rig) addGPUNode(name string, i gpu.Inventory, dra bool) {
	r.t.Helper()
	r.addNode(name, true, func(n *corev1.Node) { n.Annotations[gpu.InventoryAnnotation] = i.String() })
	if !dra {
		return
	}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: claims.Driver}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", claims.Driver)}}}}}
	if _, err := shared.client.ResourceV1().DeviceClasses().Create(r.t.Context(), class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		r.t.Fatal(err)
	}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name + "-gpus"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: claims.Driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}}}
	for _, d := range i.Devices {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", d.Index),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"uuid": {StringValue: &d.UUID}}})
	}
	// The driver may have devices without a UUID, which a claim's selector must survive.
	slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: "channel-0"})
	if _, err := shared.client.ResourceV1().ResourceSlices().Create(r.t.Context(), slice, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// share returns the spec of an instance with a share of a GPU of a node.
func (r *rig) share(node string, percent int) cluster.InstanceSpec {
	s := r.spec(500)
	s.Node, s.Config.GPU, s.Config.GPUMemory = node, percent, 1<<30
	return s
}

// claim returns a claim, nil if there is none.
func (r *rig) claim(namespace, name string) *resourcev1.ResourceClaim {
	c, err := shared.client.ResourceV1().ResourceClaims(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return c
}

// trainer is a pod of somebody else that wants one of the driver's GPUs for itself on this node.
func (r *rig) trainer(name, node string) {
	r.t.Helper()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.namespace}, Spec: resourcev1.ResourceClaimSpec{
		Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "any", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: claims.Driver,
			Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `has(device.attributes["gpu.nvidia.com"].uuid)`}}}}}}}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.namespace}, Spec: corev1.PodSpec{
		NodeSelector:   map[string]string{corev1.LabelHostname: node},
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}},
		Containers:     []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
	}}
	if _, err := shared.client.ResourceV1().ResourceClaims(r.namespace).Create(r.t.Context(), c, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := shared.client.CoreV1().Pods(r.namespace).Create(r.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// room returns what a node offers.
func (b *backend) room(node string) cluster.Node {
	b.t.Helper()
	list, err := b.Nodes(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, n := range list {
		if n.Name == node {
			return n
		}
	}
	b.t.Fatalf("there is no node %s", node)
	return cluster.Node{}
}

// scheduled waits until an instance's pod is on its node.
func (r *rig) scheduled(s cluster.InstanceSpec) *corev1.Pod {
	r.t.Helper()
	var pod *corev1.Pod
	r.until("the pod is scheduled", func() string {
		if pod = r.pod(s.ID); pod == nil || pod.Spec.NodeName != s.Node {
			return fmt.Sprintf("%+v", pod)
		}
		return ""
	})
	return pod
}

// With DRA, all instances with a share of a GPU reference one claim, which the scheduler
// allocates: nobody else gets the GPU, and a GPU that somebody else has is not offered.
func TestClaims(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	node, uuids := r.node+"-gpu", []string{"GPU-" + r.namespace + "-A", "GPU-" + r.namespace + "-b"}
	r.addGPUNode(node, gpus(uuids...), true)
	b := r.backend()
	r.until("the driver's slices are seen", func() string {
		if n := b.room(node); n.Total.GPU != 200 {
			return fmt.Sprintf("%+v", n)
		}
		return ""
	})
	var specs []cluster.InstanceSpec
	for range 3 {
		s := r.share(node, 30)
		s.Devices = uuids[:1]
		if _, err := b.Start(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		specs = append(specs, s)
	}
	for _, s := range specs {
		pod := r.scheduled(s)
		if got := pod.Spec.ResourceClaims; len(got) != 1 || *got[0].ResourceClaimName != claims.Name(uuids[0]) {
			t.Errorf("claims %+v", got)
		}
	}
	c := r.claim(r.namespace, claims.Name(uuids[0]))
	if c == nil || c.Status.Allocation == nil || len(c.Status.ReservedFor) != 3 || c.Status.Allocation.Devices.Results[0].Device != "gpu-0" {
		t.Fatalf("the claim %+v", c)
	}
	if len(c.OwnerReferences) != 1 || c.OwnerReferences[0].Name != node {
		t.Errorf("owners %+v", c.OwnerReferences)
	}

	b.await(specs[0].ID, cluster.Ready)
	smaller := specs[0].Config
	smaller.CPU = 400
	if err := b.Resize(t.Context(), specs[0].ID, smaller); err == nil || !strings.Contains(err.Error(), "ResourceClaim") {
		t.Errorf("resized: %v", err)
	}

	// Somebody takes the other GPU, and nobody the first.
	r.trainer("train-1", node)
	r.until("the trainer has the other GPU", func() string {
		if c := r.claim(r.namespace, "train-1"); c.Status.Allocation == nil || c.Status.Allocation.Devices.Results[0].Device != "gpu-1" {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})
	r.trainer("train-2", node)
	r.until("there is no GPU for a second trainer", func() string {
		pod, err := shared.client.CoreV1().Pods(r.namespace).Get(t.Context(), "train-2", metav1.GetOptions{})
		if err != nil || pod.Spec.NodeName != "" {
			return fmt.Sprintf("%+v, %v", pod, err)
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable {
				return ""
			}
		}
		return "it has not been tried"
	})
	r.until("the other GPU is not offered", func() string {
		if n := b.room(node); n.Total.GPU != 100 || n.Free.GPU != 10 || n.Devices[1].Lost == "" {
			return fmt.Sprintf("%+v", n)
		}
		return ""
	})
	if _, err := b.Start(t.Context(), r.share(node, 50)); err == nil || !strings.Contains(err.Error(), "10 %") {
		t.Errorf("more than is left: %v", err)
	}

	// The next provider finds the shares again.
	next := r.backend()
	if n := next.room(node); n.Free.GPU != 10 || n.Devices[0].Instances != 3 {
		t.Errorf("the next provider: %+v", n)
	}

	// The last instance gives the GPU back.
	for _, s := range specs {
		ctx, cancel := contextFor(t, patience)
		if err := b.Stop(ctx, s.ID); err != nil {
			t.Error(err)
		}
		cancel()
	}
	r.until("the second trainer has the GPU", func() string {
		if c := r.claim(r.namespace, "train-2"); c.Status.Allocation == nil {
			return fmt.Sprintf("%+v", c.Status)
		}
		return ""
	})
	r.until("the node offers none", func() string {
		if n := b.room(node); n.Total.GPU != 0 || n.Free.GPU != 0 {
			return fmt.Sprintf("%+v", n)
		}
		return ""
	})
	if _, err := b.Start(t.Context(), r.share(node, 50)); err == nil || !strings.Contains(err.Error(), "train-") {
		t.Errorf("all GPUs are taken: %v", err)
	}
}

// A claim serves one namespace: an instance of another one does not start on its GPU, and nothing
// is left of the try. A claim of our name that asks for something else is refused.
func TestClaimsOfNamespaces(t *testing.T) {
	t.Parallel()
	one, two := newRig(t, true), newRig(t, true)
	node, uuid := one.node+"-gpu", "GPU-"+one.namespace
	one.addGPUNode(node, gpus(uuid), true)
	b := one.backend(func(o *kubernetes.Options) {
		o.NodeSelector = ""
		o.Namespaces = func() []string { return []string{one.namespace, two.namespace} }
		o.Functions = func(full string) (*v1alpha1.Function, bool) {
			if full == "m."+two.namespace {
				return two.function, true
			}
			return one.function, full == "m."+one.namespace
		}
	})
	first := one.share(node, 20)
	if _, err := b.Start(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	other := two.share(node, 20)
	if _, err := b.Start(t.Context(), other); err == nil || !strings.Contains(err.Error(), "one namespace") || !strings.Contains(err.Error(), one.namespace) {
		t.Errorf("another namespace: %v", err)
	}
	if two.pod(other.ID) != nil || two.claim(two.namespace, claims.Name(uuid)) != nil {
		t.Error("something is left of an instance that cannot start")
	}
	if n := b.room(node); n.Free.GPU != 80 || n.Fits(other.Config.Resources, cluster.Tenant{Namespace: two.namespace}) || !n.Fits(other.Config.Resources, cluster.Tenant{Namespace: one.namespace}) {
		t.Errorf("%+v", n)
	}

	// Somebody's claim has our name.
	uuid = "GPU-" + two.namespace
	two.addGPUNode(two.node+"-gpu", gpus(uuid), true)
	wrong := claims.Claim(two.namespace, uuid, "n", "u")
	wrong.OwnerReferences, wrong.Annotations, wrong.Spec.Devices.Requests[0].Exactly.Selectors = nil, nil, nil
	if _, err := shared.client.ResourceV1().ResourceClaims(two.namespace).Create(t.Context(), wrong, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	two.until("the driver's slices are seen", func() string {
		spec := two.share(two.node+"-gpu", 20)
		_, err := b.Start(t.Context(), spec)
		if err == nil || !strings.Contains(err.Error(), "does not ask for the GPU") {
			return fmt.Sprint(err)
		}
		if two.pod(spec.ID) != nil {
			t.Error("a pod is left")
		}
		return ""
	})
}

// Without the rights of the option gpu, shares are given without claims, and that is logged. With
// these rights alone, they are claimed.
func TestRightsToClaim(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	node, uuid := r.node+"-gpu", "GPU-"+r.namespace
	r.addGPUNode(node, gpus(uuid), true)
	user := "provider-" + r.namespace
	give := func(name string, needs []client.Need) {
		var rules []rbacv1.PolicyRule
		for _, n := range needs {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{n.Group}, Resources: []string{n.Resource}, Verbs: n.Verbs})
		}
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name + "-" + r.namespace}, Rules: rules}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{Kind: "User", Name: user}}}
		if _, err := shared.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := shared.client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config := shared.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	as, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var log said
	open := func() *backend {
		return r.backend(func(o *kubernetes.Options) { o.Client, o.Logger = as, zerolog.New(&log) })
	}
	give("plain", client.Needs())
	b := open()
	plain := r.share(node, 20)
	if _, err := b.Start(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	if pod := r.scheduled(plain); len(pod.Spec.ResourceClaims) > 0 || !log.has("without ResourceClaims") || !log.has("yaml/rbac.yaml") {
		t.Errorf("%+v", pod.Spec.ResourceClaims)
	}
	give("claims", client.ClaimNeeds())
	r.until("the rights count", func() string {
		missing, err := client.CheckAccess(t.Context(), as, client.ClaimNeeds(), r.namespace, []string{r.namespace})
		if err != nil || len(missing) > 0 {
			return fmt.Sprint(missing, err)
		}
		return ""
	})
	claimed := r.share(node, 20)
	if _, err := open().Start(t.Context(), claimed); err != nil {
		t.Fatal(err)
	}
	if pod := r.scheduled(claimed); len(pod.Spec.ResourceClaims) != 1 {
		t.Errorf("%+v", pod.Spec.ResourceClaims)
	}
}

// said collects what a backend logs.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) has(part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), part)
}

// Shares that sum over 100 % by somebody's edit, a GPU that falls off, a plugin that hands out the
// same GPUs, and too little memory: each is told, and nothing starts half.
func TestBadShares(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	node := r.node + "-gpu"
	r.addGPUNode(node, gpus("GPU-1", "GPU-2"), false)
	var log said
	b := r.backend(func(o *kubernetes.Options) { o.Logger = zerolog.New(&log) })

	large := r.share(node, 10)
	large.Config.GPUMemory = 17 << 30
	if _, err := b.Start(t.Context(), large); err == nil || !strings.Contains(err.Error(), "17408 MiB") || !strings.Contains(err.Error(), "16384 MiB") || r.pod(large.ID) != nil {
		t.Errorf("more memory than a GPU has: %v", err)
	}
	half := r.share(node, 60)
	half.Devices = []string{"GPU-1"}
	if _, err := b.Start(t.Context(), half); err != nil {
		t.Fatal(err)
	}
	copied := r.scheduled(half).DeepCopy()

	// Its annotations say 90 % of the other GPU: what it may use is unchanged.
	edit := func(name, value string) {
		if _, err := shared.Kubectl(t.Context(), "", "-n", r.namespace, "annotate", "--overwrite", "pod", string(half.ID), name+"="+value); err != nil {
			t.Fatal(err)
		}
	}
	edit(gpu.DeviceAnnotation, "GPU-2")
	edit(v1alpha1.SpecAnnotation, strings.Replace(copied.Annotations[v1alpha1.SpecAnnotation], `"gpu":60`, `"gpu":90`, 1))
	r.until("the edit is seen", func() string {
		if n := r.backend().room(node); n.Devices[0].Free.GPU != 40 || n.Devices[1].Free.GPU != 100 {
			return fmt.Sprintf("%+v", n)
		}
		return ""
	})

	// Somebody makes another instance's pod with 60 % of the same GPU.
	copied.ObjectMeta = metav1.ObjectMeta{Name: "m-by-hand", Namespace: r.namespace, Labels: copied.Labels, Annotations: copied.Annotations}
	copied.Labels[v1alpha1.InstanceLabel] = copied.Name
	copied.Annotations[v1alpha1.SpecAnnotation] = strings.Replace(copied.Annotations[v1alpha1.SpecAnnotation], `"id":"`+string(half.ID)+`"`, `"id":"m-by-hand"`, 1)
	copied.Spec.NodeName = ""
	if _, err := shared.client.CoreV1().Pods(r.namespace).Create(t.Context(), copied, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.until("it is told", func() string {
		if n := b.room(node); !log.has("instances hold 120 % and 2048 MiB of the GPU GPU-1") || n.Devices[0].Free.GPU != -20 {
			return fmt.Sprintf("%+v", n)
		}
		return ""
	})
	third := r.share(node, 10)
	third.Devices = []string{"GPU-1"}
	if in, err := b.Start(t.Context(), third); err != nil || in.Device() != "GPU-2" {
		t.Errorf("beside an over-full GPU: %+v, %v", in, err)
	}

	// The first GPU falls off: its instances go, and the other's stay.
	inventory := gpus("GPU-1", "GPU-2")
	inventory.Devices[0].Lost = "XID 79"
	annotate := func(i gpu.Inventory) {
		if _, err := shared.Kubectl(t.Context(), "", "annotate", "--overwrite", "node", node, gpu.InventoryAnnotation+"="+i.String()); err != nil {
			t.Fatal(err)
		}
	}
	annotate(inventory)
	if in := b.await(half.ID, cluster.Exited); !strings.Contains(in.Reason, "GPU-1") || !strings.Contains(in.Reason, "XID 79") {
		t.Errorf("%+v", in)
	}
	b.await("m-by-hand", cluster.Exited)
	if n := b.room(node); n.Total.GPU != 100 || n.Free.GPU != 90 {
		t.Errorf("%+v", n)
	}
	if i := b.GPUs(); len(i) != 1 || len(i[0].Devices) != 2 {
		t.Errorf("the nodes' GPUs: %+v", i)
	}
	if states, last := b.history(third.ID); last.State == cluster.Exited {
		t.Errorf("the other GPU's instance: %v, %s", states, last.Reason)
	}

	// The device plugin hands out the same GPUs.
	plugin := fmt.Sprintf(`{"status":{"allocatable":{%q:"2"}}}`, gpu.WholeResource)
	if _, err := shared.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(plugin), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	r.until("nothing is shared", func() string {
		if n := b.room(node); n.Total.GPU != 0 || !log.has("given out twice") {
			return fmt.Sprintf("%+v", n)
		}
		return ""
	})
	if _, err := b.Start(t.Context(), r.share(node, 10)); err == nil || !strings.Contains(err.Error(), "given out twice") {
		t.Errorf("%v", err)
	}
}

// A pod reaches the daemon of its own GPU only, and none with a MIG instance, which it has alone. A GPU whose
// daemon fails takes its own instances with it.
func TestOwnDaemons(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	node := r.node + "-gpu"
	i := gpus("GPU-1", "GPU-2", "MIG-3")
	i.PipeDirectory, i.Devices[0].PipeDirectory, i.Devices[1].PipeDirectory = "", "/run/mps/1/pipe", "/run/mps/2/pipe"
	i.Devices[2].Parent, i.Devices[2].Percent, i.Devices[2].Unshareable, i.Devices[2].Whole = "GPU-3", 42, "MIG", true
	r.addGPUNode(node, i, false)
	b := r.backend()
	at := func(device string, percent int, directories ...string) cluster.InstanceSpec {
		t.Helper()
		s := r.share(node, percent)
		s.Devices = []string{device}
		in, err := b.Start(t.Context(), s)
		if err != nil || in.Device() != device {
			t.Fatalf("on %s: %+v, %v", device, in, err)
		}
		var mounted []string
		for _, v := range r.scheduled(s).Spec.Volumes {
			if v.HostPath != nil {
				mounted = append(mounted, v.HostPath.Path)
			}
		}
		if !slices.Equal(mounted, directories) {
			t.Errorf("the pod on %s mounts %q", device, mounted)
		}
		return s
	}
	first := at("GPU-1", 20, "/run/mps/1/pipe", "/dev/shm")
	second := at("GPU-2", 20, "/run/mps/2/pipe", "/dev/shm")
	mig := at("MIG-3", 40)
	if n := r.backend().room(node); n.Total.GPU != 242 || n.Free.GPU != 162 || n.Devices[2].Instances != 1 || n.Devices[2].Fits(cluster.Resources{GPU: 1}) {
		t.Errorf("%+v", n)
	}
	next := r.share(node, 40)
	next.Devices = []string{"MIG-3"}
	if in, err := b.Start(t.Context(), next); err != nil || in.Device() == "MIG-3" {
		t.Errorf("a second one on a MIG instance: %+v, %v", in, err)
	}
	annotate := func() {
		if _, err := shared.Kubectl(t.Context(), "", "annotate", "--overwrite", "node", node, gpu.InventoryAnnotation+"="+i.String()); err != nil {
			t.Fatal(err)
		}
	}
	stay := func(all ...cluster.InstanceSpec) {
		for _, s := range all {
			if states, last := b.history(s.ID); last.State == cluster.Exited {
				t.Errorf("the instance on %s: %v, %s", s.Device(), states, last.Reason)
			}
		}
	}
	i.Devices[0].PipeDirectory, i.Devices[0].Lost = "", "the MPS daemon ended"
	annotate()
	if in := b.await(first.ID, cluster.Exited); !strings.Contains(in.Reason, "the MPS daemon ended") {
		t.Errorf("%+v", in)
	}
	stay(second, mig)
	// The agent does not give out the MIG instance any more.
	i.Devices[2].Whole, i.Devices[2].Unshareable = false, "it is not among the devices that are named"
	annotate()
	if in := b.await(mig.ID, cluster.Exited); !strings.Contains(in.Reason, "not among the devices") {
		t.Errorf("%+v", in)
	}
	stay(second)
}
