package nodeagent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/faas-infer/faas-infer/e2e/dgx"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster"
	"github.com/faas-infer/faas-infer/gpu"
	"github.com/faas-infer/faas-infer/gpu/device"
)

func TestCheck(t *testing.T) {
	good := Agent{Node: "n", MPS: device.MPSOptions{Directory: "/run/mps"}, Every: time.Second}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for says, spoil := range map[string]func(a *Agent){
		"--name":          func(a *Agent) { a.Node = "" },
		"--directory":     func(a *Agent) { a.MPS.Directory = "mps" },
		"--shared-memory": func(a *Agent) { a.SharedMemory = "shm" },
		"--devices":       func(a *Agent) { a.Plugin, a.Devices = true, []string{"0"} },
		"--instance-user": func(a *Agent) { a.User = -1 },
		"--every":         func(a *Agent) { a.Every = time.Millisecond },
	} {
		a := good
		spoil(&a)
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// published waits until the node's annotation is as it should be.
func published(t *testing.T, client kubernetes.Interface, node string, is func(gpu.Inventory) bool) gpu.Inventory {
	t.Helper()
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		n, err := client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if last = n.Annotations[gpu.InventoryAnnotation]; last == "" {
			continue
		}
		i, err := gpu.Parse(last)
		if err == nil && is(i) {
			return i
		}
	}
	t.Fatalf("the annotation is %s", last)
	return gpu.Inventory{}
}

// TestAgent runs the agent on a node with a DGX' GPUs (go-nvml's own mock), a real API
// server and a replacement of the MPS daemon. The agent's annotation follows the machine,
// the daemon, the device plugin and manual edits.
func TestAgent(t *testing.T) {
	cluster, err := testcluster.Start(t.Context(), testcluster.Options{Kwok: true})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop()
	if err := cluster.AddNodes(t.Context(), 1, "8", "32Gi", func(n *corev1.Node) { n.Name = "gpu-1" }); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	program, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	library := dgx.New()
	var lost atomic.Bool
	a := &Agent{
		Client: client, Node: "gpu-1", Share: true, Every: time.Second, Log: zerolog.New(zerolog.NewTestWriter(t)),
		MPS: device.MPSOptions{Program: program, Directory: t.TempDir()},
		Read: func() (gpu.Inventory, error) {
			if lost.Load() {
				return gpu.Inventory{}, gpu.ErrNone
			}
			return device.Read(library)
		},
	}
	fails := make(chan string, 1)
	a.Watch = func(ctx context.Context, o device.WatchOptions) error {
		for {
			select {
			case uuid := <-fails:
				o.Lost(uuid, "XID 79")
			case <-ctx.Done():
				return nil
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	shared := func(i gpu.Inventory) bool { percent, _ := i.Total(); return i.Sharing == gpu.MPS && percent == 800 }
	i := published(t, client, "gpu-1", shared)
	for _, d := range i.Devices {
		if d.PipeDirectory != a.MPS.Of(d.UUID).Pipes() || d.SMs != 108 {
			t.Errorf("%+v", d)
		}
	}

	// The device plugin comes, with all GPUs, and goes.
	plugin := func(n string) {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // The agent writes to it, too.
			node, err := client.CoreV1().Nodes().Get(t.Context(), "gpu-1", metav1.GetOptions{})
			if err != nil {
				return err
			}
			node.Status.Allocatable[gpu.WholeResource] = resource.MustParse(n)
			_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	plugin("8")
	i = published(t, client, "gpu-1", func(i gpu.Inventory) bool { return i.Sharing == gpu.Whole })
	if percent, _ := i.Total(); percent != 0 || !strings.Contains(i.Reason, "given out twice") {
		t.Errorf("%+v", i)
	}
	plugin("0")
	published(t, client, "gpu-1", shared)

	// Somebody edits the annotation.
	patch := applycorev1.Node("gpu-1").WithAnnotations(map[string]string{gpu.InventoryAnnotation: "nonsense"})
	if _, err := client.CoreV1().Nodes().Apply(t.Context(), patch, metav1.ApplyOptions{FieldManager: "somebody", Force: true}); err != nil {
		t.Fatal(err)
	}
	published(t, client, "gpu-1", shared)

	// All daemons die and cannot come again: that is said, until they can.
	pid := func(n int) string {
		return filepath.Join(a.MPS.Of(i.Devices[n].UUID).Pipes(), device.MPSProgram+".pid")
	}
	if err := os.Rename(program, program+".gone"); err != nil {
		t.Fatal(err)
	}
	for n := range i.Devices {
		if err := os.Remove(pid(n)); err != nil {
			t.Fatal(err)
		}
	}
	i = published(t, client, "gpu-1", func(i gpu.Inventory) bool { return i.Sharing == gpu.None })
	if len(i.Devices) != 8 || !strings.Contains(i.Reason, "MPS daemon") {
		t.Errorf("%+v", i)
	}
	if err := os.Rename(program+".gone", program); err != nil {
		t.Fatal(err)
	}
	published(t, client, "gpu-1", shared)

	lost.Store(true)
	published(t, client, "gpu-1", func(i gpu.Inventory) bool {
		return i.Sharing == gpu.None && len(i.Devices) == 8 && i.Devices[7].Lost != ""
	})
	lost.Store(false)
	published(t, client, "gpu-1", shared)

	// A GPU fails, and the rest goes on.
	fails <- i.Devices[3].UUID
	i = published(t, client, "gpu-1", func(i gpu.Inventory) bool { percent, _ := i.Total(); return percent == 700 })
	if i.Devices[3].Lost != "XID 79" || i.Sharing != gpu.MPS {
		t.Errorf("%+v", i)
	}

	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	i = published(t, client, "gpu-1", func(i gpu.Inventory) bool { return i.Sharing == gpu.None })
	if len(i.Devices) != 8 || !strings.Contains(i.Reason, "ended") {
		t.Errorf("%+v", i)
	}
	for n := range i.Devices {
		if _, err := os.Stat(pid(n)); !os.IsNotExist(err) {
			t.Error("a daemon is left")
		}
	}
}

// plugged returns the node as NVIDIA's device plugin advertises n GPUs on it.
func plugged(n string) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{gpu.WholeResource: resource.MustParse(n)}}}
}

// The agent shares exactly the GPUs that the device plugin gave to its container, though the
// plugin advertises all of the node's. It shares none if the plugin gives a GPU to others, too.
func TestDevicePlugin(t *testing.T) {
	program, err := dgx.Control(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	library := dgx.New()
	all, err := device.Read(library)
	if err != nil {
		t.Fatal(err)
	}
	a, b := all.Devices[2].UUID, all.Devices[5].UUID
	for _, test := range []struct{ visible, advertised, want, says string }{
		{a + "," + b, "8", a + " " + b, ""},
		{"2,5", "8", a + " " + b, ""},
		{a, "16", "", "several times"},
		{a + "," + a, "16", "", "twice"},
		{"all", "8", "", "nvidia.com/gpu"},
		{"", "8", "", "is empty"},
		{"GPU-elsewhere", "8", "", "there is no GPU"},
	} {
		agent := &Agent{Share: true, Plugin: true, Visible: test.visible, RuntimeClass: "nvidia", Every: time.Second, Log: zerolog.Nop(),
			MPS: device.MPSOptions{Program: program, Directory: t.TempDir()}, Read: func() (gpu.Inventory, error) { return device.Read(library) }}
		i := agent.inventory(t.Context(), plugged(test.advertised))
		var shared []string
		for _, d := range i.Shareable() {
			shared = append(shared, d.UUID)
		}
		if got := strings.Join(shared, " "); got != test.want || !strings.Contains(i.Reason, test.says) || i.Claimed != (got != "") || (i.RuntimeClass == "nvidia") != i.Claimed {
			t.Errorf("%q of %s: %q, %+v", test.visible, test.advertised, got, i)
		}
		if len(i.Devices) != 8 {
			t.Errorf("%q: %d devices are published", test.visible, len(i.Devices))
		}
		if err := agent.stop(); err != nil {
			t.Error(err)
		}
	}
}

// The manifest's rights suffice for the agent's own annotation and for no other change of
// a node.
func TestRights(t *testing.T) {
	cluster, err := testcluster.Start(t.Context(), testcluster.Options{Kwok: true})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop()
	n := 0
	if err := cluster.AddNodes(t.Context(), 2, "8", "32Gi", func(node *corev1.Node) { n++; node.Name = fmt.Sprint("gpu-", n) }); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../yaml/node-agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cluster.Kubectl(t.Context(), string(text), "apply", "-f", "-"); err != nil {
		t.Fatal(out, err)
	}
	config := rest.CopyConfig(cluster.Config())
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:faas-infer-node:faas-infer-node",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {"gpu-1"}},
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	write := func(node *applycorev1.NodeApplyConfiguration) error {
		_, err := client.CoreV1().Nodes().Apply(t.Context(), node, metav1.ApplyOptions{FieldManager: manager, Force: true})
		return err
	}
	ours := map[string]string{gpu.InventoryAnnotation: "{}"}
	// A policy is in force a moment after it was written.
	for deadline := time.Now().Add(time.Minute); write(applycorev1.Node("gpu-2").WithAnnotations(ours)) == nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it may change another node")
		}
	}
	if err := write(applycorev1.Node("gpu-1").WithAnnotations(ours)); err != nil {
		t.Errorf("its own annotation: %v", err)
	}
	for what, node := range map[string]*applycorev1.NodeApplyConfiguration{
		"a label":             applycorev1.Node("gpu-1").WithAnnotations(ours).WithLabels(map[string]string{"a": "b"}),
		"another annotation":  applycorev1.Node("gpu-1").WithAnnotations(ours).WithAnnotations(map[string]string{"a": "b"}),
		"a taint":             applycorev1.Node("gpu-1").WithAnnotations(ours).WithSpec(applycorev1.NodeSpec().WithTaints(applycorev1.Taint().WithKey("a").WithEffect(corev1.TaintEffectNoSchedule))),
		"being unschedulable": applycorev1.Node("gpu-1").WithAnnotations(ours).WithSpec(applycorev1.NodeSpec().WithUnschedulable(true)),
	} {
		if err := write(node); err == nil {
			t.Errorf("it may change %s of its node", what)
		}
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), "gpu-1", metav1.DeleteOptions{}); err == nil {
		t.Error("it may delete a node")
	}
}
