package backend_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/gpu"
)

// runsWith sets the CPU in a container's status, in millicores.
func (r *rig) runsWith(id cluster.InstanceID, cpu int) {
	r.t.Helper()
	r.say(id, func(s *corev1.PodStatus) {
		amount := corev1.ResourceList{corev1.ResourceCPU: podspec.CPU(cpu)}
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "m", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			Resources: &corev1.ResourceRequirements{Requests: amount, Limits: amount}}}
	})
}

// asked waits until a pod's spec has a CPU share in millicores.
func (r *rig) asked(id cluster.InstanceID, cpu int) {
	r.t.Helper()
	r.until(fmt.Sprintf("the pod is to have %d millicores", cpu), func() string {
		pod := r.pod(id)
		if pod == nil {
			return "not there"
		}
		if got := pod.Spec.Containers[0].Resources.Limits.Cpu().MilliValue(); got != int64(cpu) {
			return fmt.Sprint(got)
		}
		return ""
	})
}

func TestResizeAndPark(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	a, b := r.backend(), r.backend()
	spec := r.start(a, 2000)
	r.say(spec.ID, func(s *corev1.PodStatus) {
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "m", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	})
	r.serves(spec.ID)
	a.await(spec.ID, cluster.Ready)

	smaller := spec.Config
	smaller.CPU = 1500
	// A kubelet that does not say what a pod may use is asked for nothing.
	silent := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "does not report its resources")
	}
	if err := a.Resize(t.Context(), spec.ID, smaller); !silent(err) {
		t.Errorf("resized by a kubelet that cannot: %v", err)
	}
	r.asked(spec.ID, 2000)
	r.runsWith(spec.ID, 2000)
	done := make(chan error, 1)
	go func() {
		err := a.Resize(t.Context(), spec.ID, smaller)
		for ; silent(err); err = a.Resize(t.Context(), spec.ID, smaller) {
			time.Sleep(10 * time.Millisecond) // The watch has not told yet.
		}
		done <- err
	}()
	r.asked(spec.ID, 1500)
	select {
	case err := <-done:
		t.Fatalf("it returned before the kubelet had done it: %v", err)
	default:
	}
	r.runsWith(spec.ID, 1500)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := r.one(a); n.Free.CPU != 6500 {
		t.Errorf("after resizing: %+v", n)
	}

	go func() { done <- a.Park(t.Context(), spec.ID) }()
	r.asked(spec.ID, podspec.ParkedCPU)
	r.runsWith(spec.ID, podspec.ParkedCPU)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.until("the other replica sees it parked", func() string {
		if _, last := b.history(spec.ID); !last.Parked || last.Config.CPU != 1500 {
			return fmt.Sprintf("%+v", last.Config)
		}
		return ""
	})
	// What a parked one keeps is the cluster's, not to be given away.
	if n := r.one(b); n.Total.CPU != 8000-podspec.ParkedCPU || n.Free.CPU != n.Total.CPU || n.Free.Memory != 8<<30-64<<20 {
		t.Errorf("parked: %+v", n)
	}

	// A node that has no room leaves all as it was.
	go func() { done <- a.Resize(t.Context(), spec.ID, smaller) }()
	r.asked(spec.ID, 1500)
	r.say(spec.ID, func(s *corev1.PodStatus) {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "no room"})
	})
	if err := <-done; err == nil || !strings.Contains(err.Error(), "Deferred: no room") {
		t.Errorf("refused: %v", err)
	}
	r.asked(spec.ID, podspec.ParkedCPU)
	if n := r.one(a); n.Free.CPU != 8000-podspec.ParkedCPU {
		t.Errorf("still parked: %+v", n)
	}
	r.say(spec.ID, func(s *corev1.PodStatus) {
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
	})
	next := r.backend()
	if list, err := next.Instances(t.Context()); err != nil || len(list) != 1 || !list[0].Parked {
		t.Errorf("taken over %+v, %v", list, err)
	}

	go func() { done <- a.Resize(t.Context(), spec.ID, smaller) }()
	r.asked(spec.ID, 1500)
	r.runsWith(spec.ID, 1500)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wrong := smaller
	wrong.CPU = 3000
	if err := a.Resize(t.Context(), spec.ID, wrong); err == nil || !strings.Contains(err.Error(), "threads") {
		t.Errorf("more threads: %v", err)
	}
	if err := a.Resize(t.Context(), "nobody", smaller); err == nil {
		t.Error("an instance that does not exist was resized")
	}
}

// The leader is killed while an instance has more CPU to start with. The next one takes that back. If the node refuses,
// the pod's spec says what it has.
func TestStartingShareOutlivesLeader(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	first := r.backend()
	refused, taken := r.spec(250), r.spec(250)
	for _, spec := range []*cluster.InstanceSpec{&refused, &taken} {
		spec.Awaited = true
		if _, err := first.Start(t.Context(), *spec); err != nil {
			t.Fatal(err)
		}
		r.asked(spec.ID, 900)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next := r.backend()
	list, err := next.Instances(t.Context())
	if err != nil || len(list) != 2 || list[0].Config.CPU != 250 || list[1].Config.CPU != 250 {
		t.Fatalf("found %+v, %v", list, err)
	}
	if n := r.one(next); n.Free.CPU != 8000-2*900 {
		t.Errorf("while both start: %+v", n)
	}
	for _, spec := range []cluster.InstanceSpec{refused, taken} {
		r.runsWith(spec.ID, 900)
		r.serves(spec.ID)
		r.asked(spec.ID, 250)
	}
	r.runsWith(taken.ID, 250)
	r.say(refused.ID, func(s *corev1.PodStatus) {
		s.Conditions = append(s.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: "static",
		})
	})
	r.asked(refused.ID, 900)
	r.until("both count as what they have", func() string {
		n := r.one(next)
		for _, spec := range []cluster.InstanceSpec{refused, taken} {
			if pod := r.pod(spec.ID); podspec.StartingCPU(pod) != 0 {
				return fmt.Sprintf("%+v", pod.ObjectMeta)
			}
		}
		if _, last := next.history(refused.ID); n.Free.CPU != 8000-900-250 || last.Config.CPU != 900 {
			return fmt.Sprintf("%+v, %+v", n, last)
		}
		return ""
	})
	third := r.spec(250)
	third.Awaited = true
	if _, err := next.Start(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	r.asked(third.ID, 250)
}

// An instance is not given more CPU to start with by a node that could not take it back.
func TestNoStartingShareOnOldKubelet(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	name := r.node
	r.node += "-old"
	r.addNode(r.node, false, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.32.9" })
	b := r.backend()
	spec := r.spec(250)
	spec.Awaited = true
	if _, err := b.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	r.asked(spec.ID, 250)
	r.node = name
	spec = r.spec(250)
	spec.Awaited = true
	if _, err := b.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	r.asked(spec.ID, 900)
}

func TestEligible(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	taint := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	inventory := gpu.Inventory{Sharing: gpu.MPS, PipeDirectory: "/run/mps", Devices: []gpu.Device{{UUID: "GPU-1", Memory: 16 << 30}}}
	r.addNode(r.node+"-gpu", false, func(n *corev1.Node) {
		n.Labels["disk"], n.Spec.Taints = "ssd", []corev1.Taint{taint}
		n.Annotations = map[string]string{gpu.InventoryAnnotation: inventory.String()}
	})
	b := r.backend(func(o *kubernetes.Options) { o.Profiles = profiles{} })
	deployment := func(profile string, constraints ...string) types.FunctionDeployment {
		return types.FunctionDeployment{Service: "m", Constraints: constraints, Annotations: &map[string]string{podspec.ProfileAnnotation: profile}}
	}
	check := func(d types.FunctionDeployment, want []string, why string) {
		t.Helper()
		r.until("its profile is read", func() string {
			if _, said := b.Eligible(d); strings.Contains(said, "not been read yet") {
				return said
			}
			return ""
		})
		if got, said := b.Eligible(d); !slices.Equal(got, want) || (got == nil) != (want == nil) || said != why {
			t.Errorf("%v: %v %q, want %v %q", d.Constraints, got, said, want, why)
		}
	}
	check(deployment(""), nil, "")
	r.one(b) // The tainted node is not on offer.
	check(deployment("", "disk=tape"), []string{}, "the constraint disk=tape fits none of the 2 nodes")
	check(deployment("", "disk=ssd"), []string{}, "the constraint disk=ssd fits 1 node, of which none can be used: 1 with a taint that is not tolerated (gpu=yes:NoSchedule)")
	check(deployment("gpu"), []string{r.node, r.node + "-gpu"}, "")
	check(deployment("gpu", "disk=ssd"), []string{r.node + "-gpu"}, "")
	check(deployment(""), []string{r.node}, "") // Now it is, and not for all.
	list, err := b.Nodes(t.Context())
	if err != nil || len(list) != 2 || list[1].Total.GPU != 100 || list[1].Total.GPUMemory != 16<<30 {
		t.Errorf("nodes %+v, %v", list, err)
	}
	r.until("a profile that is missing is told", func() string {
		if _, why := b.Eligible(deployment("missing")); !strings.Contains(why, "no such profile") {
			return why
		}
		return ""
	})
	if _, why := b.Eligible(deployment("", "ssd")); !strings.Contains(why, "constraints") {
		t.Errorf("a bad constraint: %q", why)
	}

	r.node += "-gpu"
	r.function.Spec.Annotations = map[string]string{podspec.ProfileAnnotation: "gpu"}
	spec := r.spec(1000)
	spec.Config.GPU, spec.Config.GPUMemory = 30, 1<<30
	if _, err := b.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	r.until("it is scheduled there", func() string {
		if pod := r.pod(spec.ID); pod == nil || pod.Spec.NodeName != r.node || pod.Annotations[gpu.DeviceAnnotation] != "GPU-1" {
			return fmt.Sprintf("%+v", pod)
		}
		return ""
	})
	list, err = b.Nodes(t.Context())
	if err != nil || len(list) != 2 || list[1].Free.GPU != 70 || list[1].Free.GPUMemory != 15<<30 {
		t.Errorf("nodes %+v, %v", list, err)
	}
	second := r.spec(1000)
	second.Config.GPU = 80
	if _, err := b.Start(t.Context(), second); err == nil || !strings.Contains(err.Error(), "70 %") {
		t.Errorf("more than is left: %v", err)
	}
}

type profiles struct{}

func (profiles) Profile(name string) (podspec.Profile, error) {
	if name != "gpu" {
		return podspec.Profile{}, podspec.ErrNoProfile
	}
	return podspec.Profile{Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}}, nil
}

// Without the right to read pods and nodes, New returns an error that names the missing
// rights.
func TestRightsMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	config := shared.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + r.namespace + ":default"}
	o := r.options()
	var err error
	if o.Client, err = clientset.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	// It is tried for as long as it may take, so that little has to do on an idle machine.
	for _, patience := range []time.Duration{3 * time.Second, patience} {
		ctx, cancel := contextFor(t, patience)
		_, err = kubernetes.New(ctx, o)
		cancel()
		if err != nil && strings.Contains(err.Error(), `cannot list resource "pods"`) && strings.Contains(err.Error(), `cannot list resource "nodes"`) {
			return
		}
	}
	t.Errorf("opened: %v", err)
}
