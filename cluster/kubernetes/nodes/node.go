// Package nodes is what the backend knows of a cluster's nodes: what each has to
// give, what the pods of others take of it, and which of them a pod may run on. It
// is pure: it is told of nodes and pods and asks nobody.
package nodes

import (
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/gpu"
)

// Node is one node, as far as it matters for placing.
type Node struct {
	Name   string
	Labels map[string]string
	// Taints are those that keep pods without a toleration away.
	Taints []corev1.Taint
	// Ready: its kubelet says that it is well. Cordoned: nothing new is to start
	// there.
	Ready, Cordoned bool
	// Allocatable is what pods may take of it, MaxPods how many there may be.
	Allocatable cluster.Resources
	MaxPods     int
	// GPUs are what it has of them; Complaint says why that cannot be read.
	GPUs      gpu.Inventory
	Complaint string
}

// Read takes from a node's object what matters.
func Read(object *corev1.Node) Node {
	n := Node{
		Name: object.Name, Labels: object.Labels, Cordoned: object.Spec.Unschedulable,
		Allocatable: amount(object.Status.Allocatable), MaxPods: int(object.Status.Allocatable.Pods().Value()),
	}
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
	n.Allocatable.GPU, n.Allocatable.GPUMemory = n.GPUs.Total()
	return n
}

// Same reports whether nothing that matters has changed: a node's status is written
// often.
func (n Node) Same(o Node) bool {
	return n.Name == o.Name && n.Ready == o.Ready && n.Cordoned == o.Cordoned && n.Allocatable == o.Allocatable &&
		n.MaxPods == o.MaxPods && n.Complaint == o.Complaint && maps.Equal(n.Labels, o.Labels) &&
		reflect.DeepEqual(n.Taints, o.Taints) && reflect.DeepEqual(n.GPUs, o.GPUs)
}

// amount is a list of resources in our units.
func amount(list corev1.ResourceList) cluster.Resources {
	return cluster.Resources{CPU: int(list.Cpu().MilliValue()), Memory: list.Memory().Value()}
}
