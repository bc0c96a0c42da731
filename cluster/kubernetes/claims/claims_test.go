package claims

import (
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// published returns a slice of the driver with these GPUs as the devices gpu-0, gpu-1 and so on.
func published(name, node string, generation int64, uuids ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
		Driver: Driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: generation, ResourceSliceCount: 1}}}
	for i, uuid := range uuids {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: "gpu-" + string(rune('0'+i)),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"uuid": {StringValue: &uuid}}})
	}
	return s
}

// allocated gives a claim a device.
func allocated(c *resourcev1.ResourceClaim, pool, device string) *resourcev1.ResourceClaim {
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: Driver, Pool: pool, Device: device}}}}
	return c
}

// The driver's whole GPUs are known by model, memory and driver. MIG instances, and devices of which it says no
// model, are not among them.
func TestWhole(t *testing.T) {
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	version := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{VersionValue: &s} }
	s := published("s", "n", 1, "GPU-a", "GPU-b", "MIG-c", "GPU-d")
	for n, more := range []map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
		{"type": text("gpu"), "productName": text("NVIDIA T4"), "driverVersion": version("580.95.5")},
		{"gpu.nvidia.com/productName": text("NVIDIA L4"), "gpu.nvidia.com/driverVersion": version("570.1.0")},
		{"type": text("mig"), "productName": text("NVIDIA A100")},
		{},
	} {
		for key, a := range more {
			s.Spec.Devices[n].Attributes[key] = a
		}
	}
	s.Spec.Devices[0].Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("15Gi")}}
	var b Book
	b.PutSlice(s)
	all := b.Whole("n")
	if len(all) != 2 || len(b.Whole("m")) > 0 || len((*Book)(nil).Whole("n")) > 0 {
		t.Fatalf("%+v", all)
	}
	if d := all[0]; d.UUID != "GPU-a" || d.Model != "NVIDIA T4" || d.Driver != "580.95.5" || d.Memory != 15<<30 || !d.Whole || !d.Dedicated || d.Grant != "" {
		t.Errorf("%+v", d)
	}
	if d := all[1]; d.UUID != "GPU-b" || d.Model != "NVIDIA L4" || d.Driver != "570.1.0" {
		t.Errorf("%+v", d)
	}
}

func TestBook(t *testing.T) {
	var none *Book
	if none.Has("n", "GPU-a") {
		t.Error("a cluster without DRA has GPUs")
	}
	var b Book
	b.PutSlice(published("old", "n", 1, "GPU-old"))
	b.PutSlice(published("new", "n", 2, "GPU-a", "GPU-b"))
	b.PutSlice(published("other", "m", 1, "GPU-c"))
	for uuid, has := range map[string]bool{"GPU-a": true, "GPU-b": true, "GPU-c": false, "GPU-old": false} {
		if b.Has("n", uuid) != has {
			t.Errorf("%s on n: %v", uuid, !has)
		}
	}
	ours := Claim("one", "GPU-a", "n", "u")
	if b.Claimed("one", "GPU-a") || !b.PutClaim(ours) || !b.Claimed("one", "GPU-a") || b.Claimed("two", "GPU-a") {
		t.Error("whether there is a claim")
	}
	if why := b.Withheld("n", "GPU-a", "two"); why != "" {
		t.Errorf("a claim that holds nothing: %s", why)
	}
	if !b.PutClaim(allocated(ours, "n", "gpu-0")) || b.PutClaim(ours) {
		t.Error("whether an allocation is a change")
	}
	theirs := allocated(&resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "train"}}, "n", "gpu-1")
	b.PutClaim(theirs)
	for _, test := range []struct{ uuid, namespace, says string }{
		{"GPU-a", "", ""}, {"GPU-a", "one", ""}, {"GPU-a", "two", "namespace one"}, {"GPU-b", "", "lab/train"}, {"GPU-b", "one", "lab/train"}, {"GPU-unknown", "", ""},
	} {
		if why := b.Withheld("n", test.uuid, test.namespace); (why == "") != (test.says == "") || !strings.Contains(why, test.says) {
			t.Errorf("%+v: %q", test, why)
		}
	}
	// Who only observes a device does not hold it.
	yes := true
	theirs.Status.Allocation.Devices.Results[0].AdminAccess = &yes
	b.PutClaim(theirs)
	if why := b.Withheld("n", "GPU-b", ""); why != "" {
		t.Errorf("an observer: %s", why)
	}
	b.DeleteClaim("one", ours.Name)
	if why := b.Withheld("n", "GPU-a", "two"); why != "" || b.Claimed("one", "GPU-a") {
		t.Errorf("the claim is deleted: %s", why)
	}
	sick := published("new", "n", 2, "GPU-a")
	sick.Spec.Devices[0].Taints = []resourcev1.DeviceTaint{{Key: "gpu.nvidia.com/xid", Value: "79", Effect: resourcev1.DeviceTaintEffectNoExecute}}
	b.PutSlice(sick)
	if why := b.Withheld("n", "GPU-a", ""); !strings.Contains(why, "xid=79") {
		t.Errorf("a tainted device: %q", why)
	}
	b.DeleteSlice("new")
	if b.Has("n", "GPU-a") || !b.Has("n", "GPU-old") {
		t.Error("a slice is deleted")
	}
}

func TestClaim(t *testing.T) {
	a := Claim("one", "GPU-0a-B", "n", "u")
	if a.Name != "faas-infer-gpu-0a-b" || a.OwnerReferences[0].UID != "u" || a.Spec.Devices.Requests[0].Exactly.DeviceClassName != "gpu.nvidia.com" {
		t.Errorf("%+v", a)
	}
	if m := Claim("one", "MIG-GPU-1/3/0", "n", "u"); m.Name != "faas-infer-mig-gpu-1-3-0" || m.Spec.Devices.Requests[0].Exactly.DeviceClassName != "mig.nvidia.com" {
		t.Errorf("%+v", m)
	}
	if err := Check(a, Claim("one", "GPU-0a-B", "n", "u")); err != nil {
		t.Error(err)
	}
	all := Claim("one", "GPU-0a-B", "n", "u")
	all.Spec.Devices.Requests[0].Exactly.Selectors = nil
	if err := Check(all, a); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("%v", err)
	}
}
