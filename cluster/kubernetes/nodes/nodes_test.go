package nodes

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/gpu"
)

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func container(name, cpu, memory string) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list(cpu, memory)}}
}

func TestRead(t *testing.T) {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{gpu.InventoryAnnotation: gpu.Inventory{
			Sharing: gpu.MPS, PipeDirectory: "/run/mps", Devices: []gpu.Device{{UUID: "a", Memory: 8}, {UUID: "b", Memory: 8, Unshareable: "no"}}}.String()}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}, {Key: "hard", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Allocatable: list("4", "1Ki"),
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	n := Read(object)
	if want := (cluster.Resources{CPU: 4000, Memory: 1024, GPU: 100, GPUMemory: 8}); n.Allocatable != want || !n.Ready || len(n.Taints) != 1 || n.Complaint != "" {
		t.Errorf("%+v", n)
	}
	if !n.Same(Read(object)) {
		t.Error("the same is not the same")
	}
	object.Annotations[gpu.InventoryAnnotation] = "nonsense"
	if bad := Read(object); bad.Complaint == "" || bad.Allocatable.GPU != 0 || n.Same(bad) {
		t.Errorf("%+v", bad)
	}
}

// Kubelets before 1.33 do not change the resources of pods that run. The version outlasts the cache of nodes.
func TestOldKubelets(t *testing.T) {
	for kubelet, want := range map[string]bool{
		"v1.29.4-gke.1043002": true, "v1.32.9+k3s1": true, "v1.33.0": false, "v1.33.0-rc.1": false,
		"v1.36.3": false, "v2.0": false, "": false, "kwok-v0.8.0": false,
	} {
		object := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: kubelet}}}
		n := Read(Trim(object))
		if n.NoResize != want {
			t.Errorf("%q is too old: %v", kubelet, n.NoResize)
		}
		object.Status.NodeInfo.KubeletVersion = "v1.36.3"
		if n.Same(Read(object)) == want {
			t.Errorf("after an upgrade from %q nothing is different", kubelet)
		}
	}
}

// GPUs that the device plugin hands out are not shared as well, whatever the annotation says,
// unless the plugin gave them to the agent.
func TestHandedOutTwice(t *testing.T) {
	for _, test := range []struct {
		claimed bool
		whole   string
		shares  bool
	}{{false, "0", true}, {false, "2", false}, {true, "2", true}, {true, "4", false}} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{gpu.InventoryAnnotation: gpu.Inventory{
			Sharing: gpu.MPS, PipeDirectory: "/run/mps", Claimed: test.claimed, Devices: []gpu.Device{{UUID: "a", Memory: 8}, {UUID: "b", Memory: 8}}}.String()}},
			Status: corev1.NodeStatus{Allocatable: list("4", "1Ki")}}
		object.Status.Allocatable[gpu.WholeResource] = resource.MustParse(test.whole)
		if n := Read(Trim(object)); (n.Allocatable.GPU == 200) != test.shares || (n.Complaint == "") != test.shares {
			t.Errorf("%+v: %+v", test, n)
		}
	}
}

// MIG instances that the device plugin hands out are not given out as well.
func TestMIGHandedOutTwice(t *testing.T) {
	for _, test := range []struct {
		claimed bool
		name    corev1.ResourceName
		count   string
		uses    bool
	}{
		{false, "nvidia.com/mig-1g.5gb", "0", true}, {false, "nvidia.com/mig-1g.5gb", "2", false}, {false, gpu.WholeResource, "2", false},
		{true, "nvidia.com/mig-1g.5gb", "2", true}, {true, "nvidia.com/mig-1g.5gb", "8", false}, {false, "nvidia.com/other", "2", true},
	} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{gpu.InventoryAnnotation: gpu.Inventory{
			Sharing: gpu.None, Claimed: test.claimed, Devices: []gpu.Device{
				{UUID: "a", Memory: 40, Divided: true, Unshareable: "MIG"},
				{UUID: "MIG-1", Parent: "a", Percent: 14, Memory: 8, Unshareable: "MIG", Whole: true},
				{UUID: "MIG-2", Parent: "a", Percent: 14, Memory: 8, Unshareable: "MIG", Whole: true},
			}}.String()}},
			Status: corev1.NodeStatus{Allocatable: list("4", "1Ki")}}
		object.Status.Allocatable[test.name] = resource.MustParse(test.count)
		if n := Read(Trim(object)); (n.Allocatable.GPU == 28) != test.uses || (n.Allocatable.GPUMemory == 16) != test.uses || (n.Complaint == "") != test.uses {
			t.Errorf("%+v: %+v", test, n)
		}
	}
}

func TestRequests(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := container("s", "100m", "10")
	sidecar.RestartPolicy = &always
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{container("a", "1", "100"), container("b", "500m", "50")},
			InitContainers: []corev1.Container{sidecar, container("i", "1", "300")}, Overhead: list("10m", "1")},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "b", AllocatedResources: list("2", "50")}}},
	}
	// CPU: what shrinks still has its 2 cores; memory: the initialisation takes more.
	if got, want := Requests(pod), (cluster.Resources{CPU: 3110, Memory: 311}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	pod = &corev1.Pod{Spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("3", "7")}}}
	if got := Requests(pod); got.CPU != 3000 {
		t.Errorf("the pod's own: %+v", got)
	}
}

// What a webhook or a RuntimeClass adds to a pod counts beside the pod's own container.
func TestBeside(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	native := container("native", "100m", "10")
	native.RestartPolicy = &always
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want cluster.Resources
	}{
		"alone":             {corev1.PodSpec{}, cluster.Resources{}},
		"classic sidecar":   {corev1.PodSpec{Containers: []corev1.Container{container("proxy", "200m", "20")}}, cluster.Resources{CPU: 200, Memory: 20}},
		"native sidecar":    {corev1.PodSpec{InitContainers: []corev1.Container{native}}, cluster.Resources{CPU: 100, Memory: 10}},
		"overhead":          {corev1.PodSpec{Overhead: list("250m", "30")}, cluster.Resources{CPU: 250, Memory: 30}},
		"a large beginning": {corev1.PodSpec{InitContainers: []corev1.Container{container("copy", "10m", "150")}}, cluster.Resources{Memory: 50}},
	} {
		pod := &corev1.Pod{Spec: c.spec}
		pod.Spec.Containers = append(pod.Spec.Containers, container("own", "1", "100"))
		if got := Beside(pod, "own"); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if got, want := Requests(pod), c.want.Add(cluster.Resources{CPU: 1000, Memory: 100}); got != want {
			t.Errorf("%s: in all %+v, want %+v", name, got, want)
		}
	}
}

func TestLedger(t *testing.T) {
	var l Ledger
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{container("a", "1", "10")}}}
	for range 2 { // Events may come twice.
		l.Put("p", pod)
		l.Put("q", pod)
	}
	if got, pods := l.Taken("n"); got.CPU != 2000 || pods != 2 {
		t.Errorf("%+v of %d", got, pods)
	}
	moved := pod.DeepCopy()
	moved.Spec.NodeName = "m"
	l.Put("q", moved)
	pod.Status.Phase = corev1.PodSucceeded
	l.Put("p", pod)
	l.Delete("p")
	if got, pods := l.Taken("n"); got != (cluster.Resources{}) || pods != 0 {
		t.Errorf("n: %+v of %d", got, pods)
	}
	if got, pods := l.Taken("m"); got.CPU != 1000 || pods != 1 {
		t.Errorf("m: %+v of %d", got, pods)
	}
}

func TestEligible(t *testing.T) {
	gpuTaint := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	all := []*Node{
		{Name: "a", Ready: true, Labels: map[string]string{"disk": "ssd"}},
		{Name: "b", Ready: true, Labels: map[string]string{"disk": "hdd", "gen": "5"}},
		{Name: "c", Ready: true, Labels: map[string]string{"disk": "ssd"}, Taints: []corev1.Taint{gpuTaint}},
		{Name: "d", Labels: map[string]string{"zone": "z"}},
	}
	affinity := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	expression := func(key string, o corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: o, Values: values}}}
	}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		want []string
		why  string
	}{
		"any":        {want: []string{"a", "b"}},
		"selector":   {spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}, want: []string{"a"}},
		"toleration": {spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}, Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}}, want: []string{"a", "c"}},
		"affinity":   {spec: corev1.PodSpec{Affinity: affinity(expression("gen", corev1.NodeSelectorOpGt, "4"), expression("disk", corev1.NodeSelectorOpIn, "ssd", "tape"))}, want: []string{"a", "b"}},
		"field":      {spec: corev1.PodSpec{Affinity: affinity(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}}})}, want: []string{"b"}},
		"empty term": {spec: corev1.PodSpec{Affinity: affinity(corev1.NodeSelectorTerm{})}, want: []string{}, why: "W fits none of the 4 nodes"},
		"none":       {spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "tape"}}, want: []string{}, why: "W fits none of the 4 nodes"},
		"not ready":  {spec: corev1.PodSpec{NodeSelector: map[string]string{"zone": "z"}}, want: []string{}, why: "W fits 1 node, of which none can be used: 1 not ready or cordoned"},
	} {
		s, err := NewSelector(&c.spec)
		if err != nil {
			t.Fatal(name, err)
		}
		if got, why := s.Eligible(all, "W"); !slices.Equal(got, c.want) || why != c.why || got == nil {
			t.Errorf("%s: %v %q, want %v %q", name, got, why, c.want, c.why)
		}
	}
	s, _ := NewSelector(&corev1.PodSpec{})
	if _, why := s.Eligible(all[2:3], "W"); !strings.Contains(why, "gpu=yes:NoSchedule") || !s.Any() {
		t.Errorf("taint: %q", why)
	}
	if _, err := NewSelector(&corev1.PodSpec{Affinity: affinity(expression("k", "Near", "x"))}); err == nil || !strings.Contains(err.Error(), "Near") {
		t.Errorf("bad operator: %v", err)
	}
}
