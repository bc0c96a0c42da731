package testcluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/instance/engine"
)

const (
	// kwokAnnotation marks kwok's nodes, as opposed to the real one.
	kwokAnnotation = "kwok.x-k8s.io/node"
	// leaseSeconds is the duration of a kwok node's lease.
	leaseSeconds = 40
	// creating is the maximum number of nodes created at the same time.
	creating = 16
)

func (c *Cluster) startKwok() error {
	port, err := engine.FreePort()
	if err != nil {
		return err
	}
	lease := 0
	if c.options.watchesNodes() {
		lease = leaseSeconds
	}
	return c.run("kwok", "--config", filepath.Join(c.binaries, "stages.yaml"), "--kubeconfig", c.Kubeconfig(),
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector="+kwokAnnotation+"=fake", "--cidr=10.244.0.0/14",
		"--node-ip=127.0.0.1", fmt.Sprintf("--node-lease-duration-seconds=%d", lease), fmt.Sprintf("--server-address=127.0.0.1:%d", port))
}

// AddNodes creates n kwok nodes with the given CPU and memory quantities. They have the
// names kwok-0000 and so on, and are ready at once. edit, if not nil, may change each node
// before its creation, including the name.
func (c *Cluster) AddNodes(ctx context.Context, n int, cpu, memory string, edit func(*corev1.Node)) error {
	if !c.options.Kwok {
		return errors.New("the cluster was started without Options.Kwok")
	}
	if _, err := resource.ParseQuantity(cpu); err != nil {
		return fmt.Errorf("a node's CPU %q: %w", cpu, err)
	}
	if _, err := resource.ParseQuantity(memory); err != nil {
		return fmt.Errorf("a node's memory %q: %w", memory, err)
	}
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	var all sync.WaitGroup
	errs := make([]error, n)
	free := make(chan struct{}, creating)
	for i := range n {
		node := kwokNode(fmt.Sprintf("kwok-%04d", i), cpu, memory)
		if edit != nil {
			edit(node)
		}
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				errs[i] = fmt.Errorf("create node %s: %w", node.Name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// kwokNode returns a node that is ready from the start. The API server accepts the status
// of a node at its creation.
func kwokNode(name, cpu, memory string) *corev1.Node {
	now := metav1.NewTime(time.Now())
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourcePods: resource.MustParse("1000"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ti")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kwokAnnotation: "fake"},
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", "type": "kwok"}},
		Status: corev1.NodeStatus{Capacity: amounts, Allocatable: amounts.DeepCopy(),
			Phase: corev1.NodeRunning,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: now, LastTransitionTime: now}},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeHostName, Address: name}},
			NodeInfo:  corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v" + Version}},
	}
}
