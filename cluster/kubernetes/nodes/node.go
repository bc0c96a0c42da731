// Package nodes reads a cluster's nodes: what each has to give, what other pods take of
// it, and which nodes a pod may run on. It is pure: it takes nodes and pods as arguments
// and calls no API server. Begin reading at [Read], [Ledger] and [Selector].
package nodes

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/gpu"
)

// Node holds what placement needs to know of one node.
type Node struct {
	Name string
	// Type is the node's CPU as far as labels tell ([TypeOf]).
	Type   string
	Labels map[string]string
	// Taints are those with effect NoSchedule or NoExecute.
	Taints []corev1.Taint
	// Ready: its kubelet reports that it is healthy. Cordoned: nothing new may start
	// there.
	Ready, Cordoned bool
	// NoResize: its kubelet is too old to change the resources of pods that run.
	NoResize bool
	// Allocatable is what all pods together may take of it, MaxPods their maximum
	// number.
	Allocatable cluster.Resources
	MaxPods     int
	// GPUs is its GPU inventory; Complaint says why the inventory cannot be read.
	GPUs      gpu.Inventory
	Complaint string
	// Dedicated are the whole GPUs that NVIDIA's device plugin gives to containers, in addition to those of GPUs.
	Dedicated []gpu.Device
	// AgentHas is how many of the plugin's GPUs the node agent's pod has. They are not among Dedicated.
	AgentHas int
}

// Read returns the Node of an API object.
func Read(object *corev1.Node) Node {
	n := Node{
		Name: object.Name, Type: TypeOf(object), Labels: object.Labels, Cordoned: object.Spec.Unschedulable,
		Allocatable: amount(object.Status.Allocatable), MaxPods: int(object.Status.Allocatable.Pods().Value()),
	}
	n.NoResize = isOld(object.Status.NodeInfo.KubeletVersion)
	for _, t := range object.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute {
			n.Taints = append(n.Taints, t)
		}
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready = c.Status == corev1.ConditionTrue
		}
	}
	if text, ok := object.Annotations[gpu.InventoryAnnotation]; ok {
		var err error
		if n.GPUs, err = gpu.Parse(text); err != nil {
			n.Complaint = err.Error()
		}
	}
	n.Dedicated, n.AgentHas = dedicated(object, n.GPUs), given(n.GPUs)
	n.checkOffer(Whole(object))
	n.Allocatable.GPU, n.Allocatable.GPUMemory = n.GPUs.Total()
	return n
}

// resizing is the first version whose kubelets change the resources of pods that run, unless configured otherwise.
var resizing = version.MustParseGeneric("1.33")

// isOld reports whether a kubelet's version is below resizing. A version that cannot be read is not.
func isOld(kubelet string) bool {
	v, err := version.ParseGeneric(kubelet)
	return err == nil && v.LessThan(resizing)
}

// Trust forgets the GPUs of an inventory whose agent has died long ago, before now: nobody shares
// them any more, and what has become of them is not known.
func (n *Node) Trust(now time.Time) {
	alive := n.GPUs.Alive
	n.GPUs.Alive = time.Time{} // A heartbeat is no change.
	if (gpu.Inventory{Alive: alive}).Dead(now) && len(n.GPUs.Usable()) > 0 {
		n.withdraw(gpu.None, fmt.Sprintf("the node agent has not said since %s that it lives; see why its pod does not run", alive.UTC().Format(time.RFC3339)))
		n.Allocatable.GPU, n.Allocatable.GPUMemory = n.GPUs.Total()
	}
}

// checkOffer stops the sharing of GPUs that NVIDIA's device plugin hands out as well, whatever the
// annotation says: it may have been edited, or be of an agent that has died.
func (n *Node) checkOffer(whole int) {
	if whole == 0 || len(n.GPUs.Usable()) == 0 {
		return
	}
	if sharing, why := n.GPUs.Offer(whole); sharing == gpu.Whole {
		n.withdraw(sharing, why)
	}
}

// withdraw says that instances use none of the node's GPUs, and why.
func (n *Node) withdraw(sharing gpu.Sharing, why string) {
	n.GPUs = gpu.Inventory{Devices: n.GPUs.Devices, Sharing: sharing, Reason: why}
	for i := range n.GPUs.Devices {
		n.GPUs.Devices[i].Whole = false
	}
	n.Complaint = why
}

// Whole returns how many GPUs and MIG instances NVIDIA's device plugin offers on a node, each to one
// container or to several by time slicing.
func Whole(object *corev1.Node) int {
	sum := 0
	for name, n := range object.Status.Allocatable {
		if isWhole(name) {
			sum += int(n.Value())
		}
	}
	return sum
}

// isWhole reports whether the device plugin advertises GPUs or MIG instances under a name. It counts
// instances as nvidia.com/mig-1g.5gb and the like, unless all of the node are of one size.
func isWhole(name corev1.ResourceName) bool {
	return name == gpu.WholeResource || name == gpu.WholeResource+".shared" || strings.HasPrefix(string(name), "nvidia.com/mig-")
}

// Same reports whether n and o do not differ for placement. Kubelets write a node's
// status often, mostly without such a change.
func (n Node) Same(o Node) bool {
	return n.Name == o.Name && n.Type == o.Type && n.Ready == o.Ready && n.Cordoned == o.Cordoned && n.Allocatable == o.Allocatable &&
		n.NoResize == o.NoResize &&
		n.MaxPods == o.MaxPods && n.AgentHas == o.AgentHas && n.Complaint == o.Complaint && maps.Equal(n.Labels, o.Labels) &&
		reflect.DeepEqual(n.Taints, o.Taints) && reflect.DeepEqual(n.GPUs, o.GPUs) && slices.Equal(n.Dedicated, o.Dedicated)
}

// amount converts a list of resources to millicores and bytes.
func amount(list corev1.ResourceList) cluster.Resources {
	return cluster.Resources{CPU: int(list.Cpu().MilliValue()), Memory: list.Memory().Value()}
}
