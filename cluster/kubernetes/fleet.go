package kubernetes

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/instancepod"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
)

// fleet is what is known of the nodes; Backend.mu guards it.
type fleet struct {
	nodes map[string]*nodes.Node
	// sorted are the same by name; nil when it has to be made anew.
	sorted []*nodes.Node
	// generation counts changes of what nodes are.
	generation uint64
	// ledger is what others take of them.
	ledger nodes.Ledger
	// doubted are nodes whose instances are being asked whether they still live.
	doubted map[string]bool
	// refusals are of nodes that cannot resize pods.
	refusals map[string]refusal
	// tolerated are the tolerations that functions have, eligible what was answered
	// of functions' nodes.
	tolerated map[string][]corev1.Toleration
	eligible  map[string]answer
}

// all are the nodes by name.
func (f *fleet) all() []*nodes.Node {
	if f.sorted == nil {
		f.sorted = slices.SortedFunc(maps.Values(f.nodes), func(a, b *nodes.Node) int { return cmp.Compare(a.Name, b.Name) })
	}
	return f.sorted
}

// set takes in a node; nil takes it out.
func (f *fleet) set(name string, n *nodes.Node) {
	if n == nil {
		delete(f.nodes, name)
	} else {
		f.nodes[name] = n
	}
	f.sorted, f.generation = nil, f.generation+1
}

// bears reports whether a node's taints are tolerated by anybody's instances.
func (f *fleet) bears(n *nodes.Node) bool {
	if n.Repels(nil) == "" {
		return true
	}
	for _, tolerations := range f.tolerated {
		if n.Repels(tolerations) == "" {
			return true
		}
	}
	return false
}

// Nodes lists the nodes on which instances can start: ready, not cordoned, selected
// by Options.NodeSelector and without a taint that no function tolerates. Total is
// what the pods of others leave.
func (b *Backend) Nodes(context.Context) ([]cluster.Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	held := b.held()
	list := make([]cluster.Node, 0, len(b.fleet.nodes))
	for _, n := range b.fleet.all() {
		if n.Ready && !n.Cordoned && b.selector.Matches(labels.Set(n.Labels)) && b.fleet.bears(n) {
			list = append(list, b.offer(n, held[n.Name]))
		}
	}
	return list, nil
}

// holding is what our instances have of a node.
type holding struct {
	cluster.Resources
	instances int
	// beside is what Kubernetes counts for them and we do not: a parked instance
	// still has a little of the CPU.
	beside int
}

// held is what our instances have of each node. The lock is held.
func (b *Backend) held() map[string]holding {
	all := make(map[string]holding, len(b.fleet.nodes))
	for _, e := range b.entries {
		h := all[e.instance.Node]
		h.Resources, h.instances = h.Add(e.instance.Holds()), h.instances+1
		if e.instance.Parked {
			h.beside += instancepod.ParkedCPU
		}
		all[e.instance.Node] = h
	}
	return all
}

// offer is what a node has for instances. The lock is held.
func (b *Backend) offer(n *nodes.Node, held holding) cluster.Node {
	others, pods := b.fleet.ledger.Taken(n.Name)
	total := n.Allocatable.Sub(others)
	total.CPU -= held.beside
	total.CPU, total.Memory = max(0, total.CPU), max(0, total.Memory)
	if n.MaxPods > 0 && pods+held.instances >= n.MaxPods {
		// There is no place for one more pod, however small.
		total.CPU, total.Memory = min(total.CPU, held.CPU), min(total.Memory, held.Memory)
	}
	free := total.Sub(held.Resources)
	if n.Allocatable.GPU > 0 {
		free.GPU, free.GPUMemory = n.GPUs.Free(b.heldGPUs(n.Name))
	}
	return cluster.Node{Name: n.Name, Total: total, Free: cluster.Resources{
		CPU: max(0, free.CPU), GPU: max(0, free.GPU), Memory: max(0, free.Memory), GPUMemory: max(0, free.GPUMemory),
	}}
}
