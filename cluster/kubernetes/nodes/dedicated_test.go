package nodes

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/gpu"
)

// The GPUs of a device plugin are offered whole if somebody says which they are.
func TestDedicated(t *testing.T) {
	t4 := map[string]string{productLabel: "Tesla-T4", memoryLabel: "15360", driverLabel: "580.95.05", replicasLabel: "1"}
	with := func(key, value string) map[string]string {
		labels := map[string]string{key: value}
		for k, v := range t4 {
			if k != key {
				labels[k] = v
			}
		}
		return labels
	}
	alike := gpu.Inventory{Sharing: gpu.Whole, Driver: "1", Devices: []gpu.Device{{UUID: "a", Model: "NVIDIA T4", Memory: 16 << 30}, {UUID: "b", Model: "NVIDIA T4", Memory: 16 << 30}}}
	sharing, lost := alike, alike
	sharing.Sharing, sharing.PipeDirectory = gpu.MPS, "/run/mps"
	lost.Devices = []gpu.Device{alike.Devices[0], {UUID: "b", Model: "NVIDIA T4", Memory: 16 << 30, Lost: "XID 79"}}
	has, hasOne := sharing, sharing
	has.Claimed, has.Devices = true, alike.Devices[:1]
	hasOne.Claimed, hasOne.Devices = true, []gpu.Device{alike.Devices[0], {UUID: "b", Model: "NVIDIA T4", Memory: 16 << 30, Unshareable: "it is not among the devices that are named for sharing"}}
	mixed := gpu.Inventory{Sharing: gpu.Whole, Devices: []gpu.Device{{UUID: "a", Model: "NVIDIA T4"}, {UUID: "b", Model: "NVIDIA L4"}}}
	for name, c := range map[string]struct {
		labels map[string]string
		agent  *gpu.Inventory
		count  int
		want   int
		kind   string
		memory int64
	}{
		"labels":              {t4, nil, 2, 2, "Tesla-T4, driver 580.95.05, whole", 15360 << 20},
		"older labels":        {map[string]string{productLabel: "T4", "nvidia.com/cuda.driver.major": "535", "nvidia.com/cuda.driver.minor": "104"}, nil, 1, 1, "T4, driver 535.104, whole", 0},
		"no driver":           {map[string]string{productLabel: "T4"}, nil, 1, 1, "T4, driver unknown, whole", 0},
		"no plugin":           {t4, nil, 0, 0, "", 0},
		"no labels":           {nil, nil, 2, 0, "", 0},
		"time slicing":        {with(replicasLabel, "4"), nil, 8, 0, "", 0},
		"shared name":         {with(productLabel, "Tesla-T4-SHARED"), nil, 8, 0, "", 0},
		"MIG":                 {with(productLabel, "A100-SXM4-40GB-MIG-1g.5gb"), nil, 7, 0, "", 0},
		"agent":               {nil, &alike, 2, 2, "NVIDIA T4, driver 1, whole", 16 << 30},
		"agent, labels":       {t4, &alike, 1, 1, "NVIDIA T4, driver 1, whole", 16 << 30},
		"agent, slices":       {nil, &alike, 8, 0, "", 0},
		"sharing agent":       {nil, &sharing, 2, 2, "NVIDIA T4, driver 1, whole", 16 << 30},
		"agent shares slices": {nil, &sharing, 8, 0, "", 0},
		"agent, one lost":     {nil, &lost, 2, 2, "NVIDIA T4, driver 1, whole", 16 << 30},
		"agent has all":       {nil, &has, 1, 0, "", 0},
		"agent has one":       {nil, &hasOne, 2, 1, "NVIDIA T4, driver 1, whole", 16 << 30},
		"two models":          {t4, &mixed, 2, 0, "", 0},
	} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: c.labels}, Status: corev1.NodeStatus{Allocatable: list("4", "1Ki")}}
		object.Status.Allocatable[gpu.WholeResource] = resource.MustParse(fmt.Sprint(c.count))
		if c.agent != nil {
			object.Annotations = map[string]string{gpu.InventoryAnnotation: c.agent.String()}
		}
		n := Read(Trim(object))
		if len(n.Dedicated) != c.want {
			t.Errorf("%s: %+v", name, n.Dedicated)
			continue
		}
		for k, d := range n.Dedicated {
			if kind := (gpu.Inventory{}).KindOf(&d); kind != c.kind || d.Memory != c.memory || d.UUID != gpu.Granted(k) || !d.Whole || d.Grant != gpu.WholeResource {
				t.Errorf("%s: %q, %+v", name, kind, d)
			}
		}
		if n.Allocatable.GPU > 0 != (n.AgentHas > 0) || !n.Same(Read(object)) {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// GPUs that other pods have are not offered, whatever their names: those with the highest numbers count as taken.
func TestWithhold(t *testing.T) {
	held := func(numbers ...int) map[string]bool {
		all := map[string]bool{}
		for _, n := range numbers {
			all[gpu.Granted(n)] = true
		}
		return all
	}
	for _, c := range []struct {
		count, others int
		held          map[string]bool
		free          string
	}{
		{3, 0, nil, "012"}, {3, 1, nil, "01"}, {3, 3, nil, ""}, {3, 5, nil, ""},
		{3, 1, held(2), "0 2"}, {3, 0, held(0, 1), "012"}, {3, 2, held(0), "0"},
		{2, 0, held(3), "0"}, {2, 1, held(3), ""}, // The plugin has lost one since.
	} {
		devices := []gpu.Device{{UUID: "shared"}}
		for n := range c.count {
			devices = append(devices, gpu.Device{UUID: gpu.Granted(n), Grant: gpu.WholeResource})
		}
		Withhold(devices, c.others, c.held)
		got := ""
		for n, d := range devices[1:] {
			if d.Lost == "" {
				got += fmt.Sprint(n)
			}
		}
		want := ""
		for _, r := range c.free {
			if r != ' ' {
				want += string(r)
			}
		}
		if got != want || devices[0].Lost != "" {
			t.Errorf("%+v: free are %q", c, got)
		}
	}
}

// The ledger counts the GPUs of pods.
func TestLedgerOfGPUs(t *testing.T) {
	var l Ledger
	pod := func(count string) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{gpu.WholeResource: resource.MustParse(count)}}}, {}}}}
	}
	l.Put("a", pod("2"))
	l.Put("b", pod("1"))
	l.Put("a", pod("3"))
	if n := l.GPUs("n"); n != 4 || l.GPUs("m") != 0 {
		t.Errorf("%d", n)
	}
	l.Delete("a")
	if n := l.GPUs("n"); n != 1 {
		t.Errorf("%d", n)
	}
}
