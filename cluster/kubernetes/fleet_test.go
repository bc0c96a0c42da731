package kubernetes

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/events"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/claims"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/gpu"
)

// still returns a backend with a number of nodes and of instances on each, without a
// cluster.
func still(nodeCount, perNode int) *Backend {
	b := &Backend{
		options: Options{Now: time.Now, Leading: func() bool { return true }}, selector: labels.Everything(), events: events.NewQueue(),
		entries: map[cluster.InstanceID]*entry{}, exited: map[cluster.InstanceID]time.Time{},
		fleet: fleet{generation: 1, nodes: map[string]*nodes.Node{}, instances: map[string]map[*entry]bool{}, tolerated: map[string][]corev1.Toleration{}, eligible: map[string]*answer{}},
	}
	for n := range nodeCount {
		name := fmt.Sprintf("n%04d", n)
		b.fleet.set(name, &nodes.Node{Name: name, Ready: true, Labels: map[string]string{"disk": "ssd", "host": name},
			Allocatable: cluster.Resources{CPU: 8000, Memory: 8 << 30}, MaxPods: 110})
		for i := range perNode {
			id := cluster.InstanceID(fmt.Sprintf("m-%d-%d", n, i))
			b.newEntry(cluster.Instance{State: cluster.Ready, InstanceSpec: cluster.InstanceSpec{ID: id, Node: name,
				Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 1 << 30}}}}, "n").enter()
		}
	}
	return b
}

func TestOffer(t *testing.T) {
	b := still(2, 3)
	b.fleet.put(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n0000"}})
	list, err := b.Nodes(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "n0000" || list[0].Free != (cluster.Resources{CPU: 5000, Memory: 5 << 30}) {
		t.Fatalf("%+v, %v", list, err)
	}
	b.entries["m-0-0"].instance.Parked = true
	b.fleet.markDirty("n0000")
	b.fleet.nodes["n0001"].MaxPods = 3
	b.fleet.markDirty("n0001")
	list, _ = b.Nodes(t.Context())
	if list[0].Total.CPU != 7950 || list[0].Free != (cluster.Resources{CPU: 5950, Memory: 5 << 30}) {
		t.Errorf("one is parked: %+v", list[0])
	}
	if list[1].Total != (cluster.Resources{CPU: 3000, Memory: 3 << 30}) || list[1].Free != (cluster.Resources{}) {
		t.Errorf("no place for a pod more: %+v", list[1])
	}
	cordoned := *b.fleet.nodes["n0000"]
	cordoned.Cordoned = true
	b.fleet.set("n0000", &cordoned)
	if list, _ = b.Nodes(t.Context()); len(list) != 1 {
		t.Errorf("one is cordoned: %+v", list)
	}
}

// A node's whole GPUs of the device plugin are offered as far as no other pod has them. An instance that has one
// keeps it to itself, and the kinds of GPUs do not depend on who has them.
func TestDedicatedGPUs(t *testing.T) {
	b := still(1, 0)
	n := *b.fleet.nodes["n0000"]
	for k := range 3 {
		n.Dedicated = append(n.Dedicated, gpu.Device{UUID: gpu.Granted(k), Model: "T4", Driver: "1", Memory: 15 << 30, Whole: true, Dedicated: true, Grant: gpu.WholeResource})
	}
	b.fleet.set(n.Name, &n)
	b.fleet.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{gpu.WholeResource: resource.MustParse("1")}}}}}})
	room := func() cluster.Node {
		list, err := b.Nodes(t.Context())
		if err != nil || len(list) != 1 || len(list[0].Devices) != 3 {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0]
	}
	if got := room(); got.Total.GPU != 200 || got.Devices[2].Lost == "" || got.Devices[0].Kind != "T4, driver 1, whole" {
		t.Errorf("%+v", got)
	}
	spec := cluster.InstanceSpec{ID: "m", Function: "f.n", Node: n.Name, Devices: []string{gpu.Granted(1)},
		Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, GPU: 100, GPUMemory: 15 << 30}}}
	p := podspec.ModelPlan{Spec: spec}
	if _, err := b.reserve(&p, "n"); err != nil || p.Share.Device != gpu.Granted(1) || p.Share.Grant != gpu.WholeResource || p.Claim != "" {
		t.Fatalf("%+v, %v", p.Share, err)
	}
	need, tenant := spec.Config.Resources, cluster.Tenant{Namespace: "n", Kinds: "T4, driver 1, whole"}
	got := room()
	if got.Free.GPU != 100 || cluster.BestDevice(got.Devices, need, tenant) != 0 || cluster.BestDevice(got.Devices, cluster.Resources{GPU: 50}, tenant) >= 0 {
		t.Errorf("%+v", got)
	}
	if at := cluster.BestDevice(got.Devices, need, cluster.Tenant{Kinds: "T4, driver 1"}); at >= 0 {
		t.Errorf("a model that shares GPUs gets %+v", got.Devices[at])
	}
	b.fleet.put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: corev1.PodSpec{NodeName: n.Name, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{gpu.WholeResource: resource.MustParse("1")}}}}}})
	if got := room(); cluster.BestDevice(got.Devices, need, tenant) >= 0 {
		t.Errorf("all are taken: %+v", got)
	}
	if all := b.GPUs(); len(all) != 1 || len(all[0].Devices) != 3 || all[0].Devices[2].Lost != "" {
		t.Errorf("%+v", all)
	}
	of := n
	of.AgentHas = 1
	b.fleet.set(n.Name, &of)
	if got := room(); cluster.BestDevice(got.Devices, need, tenant) < 0 {
		t.Errorf("the agent's own is none of the three, and one is free: %+v", got)
	}
}

// A whole GPU of the DRA driver on a node without an agent is given by a claim. One that the agent lists is the
// agent's alone.
func TestWholeGPUsOfTheDriver(t *testing.T) {
	b := still(1, 0)
	node, uuids := "n0000", []string{"GPU-a", "GPU-b"}
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: resourcev1.ResourceSliceSpec{Driver: claims.Driver, NodeName: &node}}
	model := "L4"
	for n := range uuids {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: uuids[n], Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"uuid": {StringValue: &uuids[n]}, "productName": {StringValue: &model}, "driverVersion": {VersionValue: &model}}})
	}
	b.fleet.claims = &claims.Book{}
	b.fleet.claims.PutSlice(slice)
	n := *b.fleet.nodes[node]
	n.GPUs = gpu.Inventory{Sharing: gpu.None, Devices: []gpu.Device{{UUID: "GPU-b", Model: model}}}
	b.fleet.set(node, &n)
	list, err := b.Nodes(t.Context())
	if err != nil || len(list[0].Devices) != 1 || list[0].Devices[0].Kind != "L4, driver L4, whole" || !list[0].Devices[0].Claimed || list[0].Total.GPU != 100 {
		t.Fatalf("%+v, %v", list, err)
	}
	p := podspec.ModelPlan{Spec: cluster.InstanceSpec{ID: "m", Function: "f.n", Node: node, Devices: uuids[:1],
		Config: cluster.Config{Batch: 1, Resources: cluster.Resources{GPU: 100}}}}
	if _, err := b.reserve(&p, "n"); err != nil || p.Claim != claims.Name("GPU-a") || p.Share.Grant != "" {
		t.Errorf("%+v, %q, %v", p.Share, p.Claim, err)
	}
}

// The agent may find MPS while an instance has a GPU without it. No share fits beside that instance, and shares
// fit once it has ended.
func TestSharingBeginsUnderAnInstance(t *testing.T) {
	b := still(1, 0)
	set := func(i gpu.Inventory) {
		n := *b.fleet.nodes["n0000"]
		n.GPUs = i
		n.Allocatable.GPU, n.Allocatable.GPUMemory = i.Total()
		b.fleet.set(n.Name, &n)
	}
	device := gpu.Device{UUID: "GPU-a", Model: "T4", Memory: 15 << 30, Unshareable: "MPS is missing", Whole: true}
	set(gpu.Inventory{Sharing: gpu.MPS, Driver: "1", Devices: []gpu.Device{device}})
	share := func(id string, percent int, memory int64) (*entry, error) {
		return b.reserve(&podspec.ModelPlan{Spec: cluster.InstanceSpec{ID: cluster.InstanceID(id), Function: "f.n", Node: "n0000",
			Config: cluster.Config{Batch: 1, Resources: cluster.Resources{GPU: percent, GPUMemory: memory}}}}, "n")
	}
	whole, err := share("whole", 100, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	device.Unshareable, device.Whole = "", false
	set(gpu.Inventory{Sharing: gpu.MPS, Driver: "1", PipeDirectory: "/run/mps", Devices: []gpu.Device{device}})
	list, err := b.Nodes(t.Context())
	if err != nil || list[0].Devices[0].Fits(cluster.Resources{GPU: 10, GPUMemory: 1 << 30}) {
		t.Errorf("a share is offered beside it: %+v, %v", list, err)
	}
	if _, err := share("beside", 10, 1<<30); err == nil {
		t.Error("a share is given beside it")
	}
	b.mu.Lock()
	whole.drop()
	b.mu.Unlock()
	if _, err := share("after", 10, 1<<30); err != nil {
		t.Error(err)
	}
}

func TestForgets(t *testing.T) {
	b := still(0, 0)
	now := time.Unix(0, 0)
	b.options.Now = func() time.Time { return now }
	for range 100 {
		for n := range 100 {
			b.rememberExit(cluster.InstanceID(fmt.Sprint(now.Unix(), "-", n)))
		}
		now = now.Add(exitedMemory)
	}
	if n := len(b.exited); n < 100 || n > 2000 {
		t.Errorf("%d of 10000 are remembered, of which 100 should be", n)
	}
}

func BenchmarkNodes(b *testing.B) {
	k := still(2000, 5)
	for b.Loop() {
		for n := range 100 { // What changes between two looks of a busy provider.
			k.fleet.markDirty(fmt.Sprintf("n%04d", n))
		}
		if list, err := k.Nodes(b.Context()); err != nil || len(list) != 2000 {
			b.Fatal(len(list), err)
		}
	}
}

func BenchmarkEligible(b *testing.B) {
	k := still(2000, 5)
	for b.Loop() {
		k.fleet.generation++
		if list, why := k.Eligible(types.FunctionDeployment{Service: "m", Constraints: []string{"disk=ssd"}}); len(list) != 2000 {
			b.Fatal(len(list), why)
		}
	}
}

// sidecar is an instance's pod with a sidecar of 200m and 32 MiB, put first, and 50m of overhead.
func sidecar(id, node, version string) *corev1.Pod {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: "n", ResourceVersion: version, UID: apitypes.UID(id), Labels: map[string]string{
			v1alpha1.ManagedByLabel: v1alpha1.ManagedBy, v1alpha1.InstanceLabel: id, v1alpha1.FunctionLabel: "m"},
			Annotations: map[string]string{v1alpha1.SpecAnnotation: `{"id":"` + id + `","function":"m.n","config":{"batch":1,"cpu":1000}}`}},
		Spec: corev1.PodSpec{NodeName: node, Overhead: list("50m", "0"), Containers: []corev1.Container{
			{Name: "istio-proxy", Resources: corev1.ResourceRequirements{Requests: list("200m", "32Mi")}},
			{Name: "m", Resources: corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

// Sidecars and the RuntimeClass' overhead count on the node of an instance, and are expected
// of the next one.
func TestSidecarsCount(t *testing.T) {
	now := time.Unix(1000, 0)
	b := still(2, 0)
	b.options.Now = func() time.Time { return now }
	extra := cluster.Resources{CPU: 250, Memory: 32 << 20}
	whole := cluster.Resources{CPU: 8000, Memory: 8 << 30}
	check := func(what string, totals ...cluster.Resources) {
		t.Helper()
		list, err := b.Nodes(t.Context())
		if err != nil || list[0].Total != totals[0] || list[1].Total != totals[1] {
			t.Errorf("%s: %+v, %v; want %+v", what, list, err, totals)
		}
	}
	check("empty", whole, whole)
	b.podSeen(podspec.Trim(sidecar("m-1", "n0000", "1")))
	check("one", whole.Sub(extra).Sub(extra), whole.Sub(extra))
	if list, _ := b.Nodes(t.Context()); list[0].Free != list[0].Total.Sub(cluster.Resources{CPU: 1000, Memory: 1 << 30}) {
		t.Errorf("free: %+v", list[0])
	}
	b.mu.Lock()
	b.newEntry(cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: "m-2", Function: "m.n", Node: "n0001"}}, "n").enter()
	b.mu.Unlock()
	check("one is being started", whole.Sub(extra).Sub(extra), whole.Sub(extra).Sub(extra))
	// Pods that run quietly for hours still show what they take. The end of another pod makes the fleet look.
	now = now.Add(2 * besideHolds)
	b.mu.Lock()
	b.newEntry(cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: "m-3", Function: "f.n", Node: "n0001"}}, "n").enter()
	b.entries["m-3"].drop()
	b.mu.Unlock()
	check("they still run", whole.Sub(extra).Sub(extra), whole.Sub(extra).Sub(extra))
	// A look takes all functions and instances, so thousands of ends at once make it look once.
	looked := now
	now = now.Add(forgetPause / 2)
	b.mu.Lock()
	for i := range 3 {
		id := cluster.InstanceID(fmt.Sprint("end-", i))
		b.newEntry(cluster.Instance{InstanceSpec: cluster.InstanceSpec{ID: id, Function: "f.n", Node: "n0001"}}, "n").enter()
		b.entries[id].drop()
	}
	b.mu.Unlock()
	if b.fleet.forgot != looked {
		t.Errorf("it looked at %v again, %v after the last time", b.fleet.forgot, now.Sub(looked))
	}
	now = now.Add(2 * besideHolds)
	b.podGone(sidecar("m-1", "n0000", "2"))
	check("the last is just gone", whole.Sub(extra), whole.Sub(extra).Sub(extra))
	now = now.Add(2 * besideHolds)
	b.mu.Lock()
	b.entries["m-2"].drop()
	b.mu.Unlock()
	check("long ago", whole, whole)
}

// A resize is settled once the function's own container has its new quota.
func TestResizeBesideSidecar(t *testing.T) {
	has := func(name, cpu string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
	}
	pod := sidecar("m-1", "n0000", "1")
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{has("istio-proxy", "200m"), has("m", "2")}
	if done, err := settled(pod, podspec.Quota{Request: 2000, Limit: 2000}); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	if done, _ := settled(pod, podspec.Quota{Request: 200, Limit: 200}); done {
		t.Error("the sidecar's quota counted")
	}
	pod.Status.ContainerStatuses[0].Resources = nil
	if unreported(pod) {
		t.Error("the sidecar's resources are not the instance's")
	}
}
