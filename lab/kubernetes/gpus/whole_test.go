package gpus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/claims"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/control"
)

// The nodes of TestWholeGPUs and the kinds of their GPUs.
const (
	agentNode, pluginNode, draNode = "kwok-0000", "kwok-0001", "kwok-0002"
	pluginKind, draKind            = "Tesla-T4, driver 580.95.05, whole", "NVIDIA L4, driver 570.1.0, whole"
)

// wholeMillis are the milliseconds of a batch on each node's kind of GPU.
var wholeMillis = map[string]float64{agentNode: 10, pluginNode: 30, draNode: 20}

// podTrials ask pods as the provider does.
type podTrials struct{ command.Trials }

// Takes would ask for a bundle's manifest, and images are no files.
func (podTrials) Takes(string) bool { return true }

// inPods are models that only pods can measure. It implements control's Models and Devices.
type inPods struct {
	published
	backend func() cluster.Backend
}

func (m inPods) Devices() (kinds []string) {
	list, err := m.backend().Nodes(context.Background())
	if err != nil {
		return nil
	}
	seen := map[string]bool{}
	for _, n := range list {
		for _, d := range n.Devices {
			seen[d.Kind] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func (inPods) OnDevice(context.Context, string, string, int, time.Duration) (*profiler.Profile, error) {
	return nil, fmt.Errorf("the provider's machine has no GPU")
}

// wholeFleet is a cluster with a node for each of the ways to a whole GPU.
type wholeFleet struct {
	fleet
	mu sync.Mutex
	// tried are the pods that were asked for a trial, by node.
	tried map[string]*corev1.Pod
}

// edit gives the nodes their GPUs: the agent's one, two of the device plugin, and one of the DRA driver.
func (f *wholeFleet) edit(n *corev1.Node) {
	switch n.Name {
	case agentNode:
		i := gpu.Inventory{Sharing: gpu.MPS, PipeDirectory: "/run/mps", Driver: "450", Devices: []gpu.Device{device(n.Name, 0)}}
		n.Annotations[gpu.InventoryAnnotation] = i.String()
	case pluginNode:
		n.Labels["nvidia.com/gpu.product"], n.Labels["nvidia.com/gpu.memory"] = "Tesla-T4", "15360"
		n.Labels["nvidia.com/cuda.driver-version.full"] = "580.95.05"
		n.Status.Capacity[gpu.WholeResource], n.Status.Allocatable[gpu.WholeResource] = resource.MustParse("2"), resource.MustParse("2")
	}
}

// publish is what NVIDIA's DRA driver does, and a pod of somebody else that has one of the device plugin's GPUs.
func (f *wholeFleet) publish() {
	f.t.Helper()
	ctx, text := f.t.Context(), func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	driver, node := "570.1.0", draNode
	_, err := f.client.ResourceV1().DeviceClasses().Create(ctx, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: claims.Driver}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", claims.Driver)}}}}}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	_, err = f.client.ResourceV1().ResourceSlices().Create(ctx, &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "gpus"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: claims.Driver, NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1}, Devices: []resourcev1.Device{{
			Name: "gpu-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"type": text("gpu"), "uuid": text("GPU-dra"), "productName": text("NVIDIA L4"), "driverVersion": {VersionValue: &driver}},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"memory": {Value: resource.MustParse("24Gi")}},
		}}}}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	amount := corev1.ResourceList{gpu.WholeResource: resource.MustParse("1")}
	_, err = f.client.CoreV1().Pods(testprovider.Namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "trainer"}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelHostname: pluginNode},
		Containers:   []corev1.Container{{Name: "c", Image: "x", Resources: corev1.ResourceRequirements{Requests: amount, Limits: amount}}}}}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

// podAt returns the pod with an instance's address, nil if there is none.
func (f *wholeFleet) podAt(address string) *corev1.Pod {
	list, err := f.client.CoreV1().Pods(testprovider.Namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		if ip := list.Items[i].Status.PodIP; ip != "" && strings.HasPrefix(address, ip+":") {
			return &list.Items[i]
		}
	}
	return nil
}

// measure answers a trial by the node on which it is.
func (f *wholeFleet) measure(address string, w http.ResponseWriter, r *http.Request) {
	pod := f.podAt(address)
	if pod == nil {
		http.Error(w, "no such pod", http.StatusInternalServerError)
		return
	}
	f.mu.Lock()
	f.tried[pod.Spec.NodeName] = pod
	f.mu.Unlock()
	p := profiler.Profile{Memory: 2 << 30, MeasuredAt: time.Now()}
	for b := 1; b <= 8; b *= 2 {
		us := wholeMillis[pod.Spec.NodeName] * 1000
		p.Measurements = append(p.Measurements, profiler.Measurement{Batch: b, Threads: 1, Median: us, P95: us, CPU: us / 10, Runs: 20})
	}
	_ = json.NewEncoder(w).Encode(p)
}

// startWhole starts all of that.
func startWhole(t *testing.T) *wholeFleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	f := &wholeFleet{tried: map[string]*corev1.Pod{}}
	f.t = t
	c := clusterOf(ctx, t, f.edit)
	var err error
	if f.client, err = clientset.NewForConfig(c.Config()); err != nil {
		t.Fatal(err)
	}
	f.publish()
	if f.instances, err = testprovider.StartStandIns(func(int) time.Duration { return 10 * time.Millisecond }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.instances.Close(); err != nil {
			t.Error(err)
		}
	})
	f.instances.Route(profile.TrialPath, f.measure)
	f.rig, err = testprovider.Open(ctx, testprovider.Options{
		Config: c.Config(), Instances: f.instances, Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
		Control: func(o *control.Options) {
			models := inPods{backend: func() cluster.Backend { return f.rig.Backend }}
			o.Models, o.Devices, o.Engine, o.Machine = models, models, engine, machine
			o.Trials = podTrials{command.Trials{Dial: f.instances.Dial}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := f.rig.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return f
}

// wholeOnes describes the function's instances by the API server, by node.
func (f *wholeFleet) wholeOnes() map[string]corev1.Pod {
	f.t.Helper()
	list, err := f.client.CoreV1().Pods(testprovider.Namespace).List(f.t.Context(), metav1.ListOptions{LabelSelector: "faas-infer.dev/instance"})
	if err != nil {
		f.t.Fatal(err)
	}
	all := map[string]corev1.Pod{}
	for _, p := range list.Items {
		if p.DeletionTimestamp != nil {
			continue
		}
		if other, double := all[p.Spec.NodeName]; double {
			f.t.Errorf("%s and %s are both on %s", other.Name, p.Name, p.Spec.NodeName)
		}
		all[p.Spec.NodeName] = p
	}
	return all
}

// reaches checks how a pod gets the whole GPU of its node.
func reaches(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	c := &pod.Spec.Containers[0]
	granted, limited := c.Resources.Limits[gpu.WholeResource]
	env := map[string]string{}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	hostPath := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
	wrong := false
	switch pod.Spec.NodeName {
	case agentNode:
		wrong = limited || len(c.Resources.Claims) > 0 || !hostPath || env["CUDA_VISIBLE_DEVICES"] != device(agentNode, 0).UUID || env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] != "100"
	case pluginNode:
		wrong = granted.Value() != 1 || len(c.Resources.Claims) > 0 || hostPath || env["CUDA_VISIBLE_DEVICES"] != "0" || env[gpu.VisibleEnv] != ""
	case draNode:
		wrong = limited || len(c.Resources.Claims) != 1 || hostPath || env["CUDA_VISIBLE_DEVICES"] != "GPU-dra"
	default:
		wrong = true
	}
	if wrong {
		t.Errorf("on %s it has %+v, %v and host paths %v", pod.Spec.NodeName, c.Resources, env, hostPath)
	}
}

// An engine that takes a whole GPU gets one on a cluster, however the node gives it out: by the node agent, by
// NVIDIA's device plugin or by its DRA driver. Its times are measured there first, on each kind, in a pod that
// ends. A GPU that another pod has is nobody else's.
func TestWholeGPUs(t *testing.T) {
	f := startWhole(t)
	f.until("the nodes' GPUs are known", func() string {
		kinds := inPods{backend: func() cluster.Backend { return f.rig.Backend }}.Devices()
		if want := []string{card, draKind, pluginKind}; !slices.Equal(kinds, want) {
			return fmt.Sprintf("%q", kinds)
		}
		return ""
	})
	f.rig.Run()
	if err := f.rig.Deploy(t.Context(), testprovider.Function{Name: "resnet-50", SLO: 200 * time.Millisecond, Exec: time.Microsecond, Device: annotation.DeviceCUDA, Min: 4}); err != nil {
		t.Fatal(err)
	}
	f.until("three instances serve, one on each node", func() string {
		if n := f.rig.Ready("resnet-50"); n != 3 {
			status, _ := f.rig.Controller.Status("resnet-50." + testprovider.Namespace)
			return fmt.Sprintf("%d are ready, %+v", n, status)
		}
		return ""
	})
	f.mu.Lock()
	tried := maps.Clone(f.tried)
	f.mu.Unlock()
	serving := f.wholeOnes()
	if len(tried) != 3 || len(serving) != 3 {
		t.Fatalf("trials on %v, instances on %v", slices.Collect(maps.Keys(tried)), slices.Collect(maps.Keys(serving)))
	}
	for node, pod := range tried {
		in := serving[node]
		if in.Name == pod.Name {
			t.Errorf("the trial %s serves", pod.Name)
		}
		reaches(t, pod)
		reaches(t, &in)
	}
	claim, err := f.client.ResourceV1().ResourceClaims(testprovider.Namespace).Get(t.Context(), claims.Name("GPU-dra"), metav1.GetOptions{})
	if err != nil || claim.Status.Allocation == nil || claim.Status.Allocation.Devices.Results[0].Device != "gpu-0" {
		t.Errorf("the claim is %+v, %v", claim, err)
	}
	for range 20 {
		if err := f.rig.Invoke(t.Context(), "resnet-50", "x"); err != nil {
			t.Error(err)
		}
	}
	// The trainer's GPU is the fourth instance's once the trainer has ended.
	if err := f.client.CoreV1().Pods(testprovider.Namespace).Delete(t.Context(), "trainer", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.until("four instances serve", func() string {
		if n := f.rig.Ready("resnet-50"); n != 4 {
			status, _ := f.rig.Controller.Status("resnet-50." + testprovider.Namespace)
			return fmt.Sprintf("%d are ready, %+v", n, status)
		}
		return ""
	})
}
