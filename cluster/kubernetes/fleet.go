package kubernetes

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/claims"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/gpu"
)

// fleet is what the backend knows of the nodes; Backend.mu guards it.
type fleet struct {
	nodes map[string]*nodes.Node
	// sorted holds the same nodes by name; nil if it is outdated.
	sorted []*nodes.Node
	// generation counts changes of nodes and of tolerations.
	generation uint64
	// ledger holds what other pods take of the nodes, instances our own on each node.
	ledger    nodes.Ledger
	instances map[string]map[*entry]bool
	// offers caches the result of Nodes, at holds each node's index in it; both are
	// nil if they are outdated. dirty holds the nodes that have changed since.
	offers []cluster.Node
	at     map[string]int
	dirty  map[string]bool
	// suspect holds the nodes whose instances are being probed because the node is not
	// ready.
	suspect map[string]bool
	// beside holds what a function's pods take in addition to their instances' shares, as they
	// showed: webhooks and RuntimeClasses decide on it. next is the largest of it in each
	// dimension, and forgot the time of the latest look for what is old.
	beside map[string]beside
	next   cluster.Resources
	forgot time.Time
	// refusals holds the nodes that cannot resize pods.
	refusals map[string]refusal
	// tolerated holds the tolerations that functions have, eligible the cached answers
	// of Eligible.
	tolerated map[string][]corev1.Toleration
	eligible  map[string]*answer
	// claims knows the GPUs that are allocated by DRA; nil if the cluster allocates none so.
	claims *claims.Book
	// overfull holds what was logged of GPUs of which instances hold more than all.
	overfull map[string]string
}

// beside is what a function's pods take in addition to their instances' shares, and when a pod showed
// it last.
type beside struct {
	cluster.Resources
	at time.Time
}

// besideHolds is how long what a function's pods took is expected of its next pod.
const besideHolds = time.Hour

// forgetPause is the time between two looks for what no pod has shown for that long.
const forgetPause = time.Minute

// learn takes in what one of a function's pods takes in addition to its instance's share. Less than
// other pods took does not count until they are forgotten: what init containers need beyond
// the share depends on whether the instance is parked.
func (f *fleet) learn(function string, taken cluster.Resources, now time.Time) {
	known := f.beside[function].Resources
	if taken == (cluster.Resources{}) || taken != known && taken.Fits(known) {
		return
	}
	if f.beside == nil {
		f.beside = map[string]beside{}
	}
	f.beside[function] = beside{larger(known, taken), now}
	f.expect(larger(f.next, taken))
}

// larger returns the larger CPU and memory of two pods.
func larger(a, b cluster.Resources) cluster.Resources {
	return cluster.Resources{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory)}
}

// expect sets next.
func (f *fleet) expect(next cluster.Resources) {
	if f.next != next {
		f.next, f.offers = next, nil
	}
}

// forget forgets what no pod has shown for long, at most once in forgetPause: it looks at all functions. A
// pod that runs shows it, too: a stable one has no events for hours.
func (f *fleet) forget(now time.Time) {
	if now.Sub(f.forgot) < forgetPause {
		return
	}
	f.forgot = now
	old := map[string]bool{}
	for function, of := range f.beside {
		if now.Sub(of.at) > besideHolds {
			delete(f.beside, function)
			old[function] = true
		}
	}
	if len(old) > 0 {
		for _, on := range f.instances {
			for e := range on {
				if function := e.instance.Function; old[function] && e.pod != nil && e.beside != (cluster.Resources{}) {
					f.beside[function] = beside{larger(f.beside[function].Resources, e.beside), now}
				}
			}
		}
	}
	var next cluster.Resources
	for _, of := range f.beside {
		next = larger(next, of.Resources)
	}
	f.expect(next)
}

// all returns the nodes by name.
func (f *fleet) all() []*nodes.Node {
	if f.sorted == nil {
		f.sorted = slices.SortedFunc(maps.Values(f.nodes), func(a, b *nodes.Node) int { return cmp.Compare(a.Name, b.Name) })
	}
	return f.sorted
}

// set adds or replaces a node; nil removes it.
func (f *fleet) set(name string, n *nodes.Node) {
	if n == nil {
		delete(f.nodes, name)
	} else {
		f.nodes[name] = n
	}
	f.sorted, f.offers, f.generation = nil, nil, f.generation+1
}

// put adds a pod that is not an instance, or not any more.
func (f *fleet) put(pod *corev1.Pod) {
	f.ledger.Put(podKey(pod), pod)
	f.markDirty(pod.Spec.NodeName)
}

// remove removes a pod.
func (f *fleet) remove(pod *corev1.Pod) {
	f.ledger.Delete(podKey(pod))
	f.markDirty(pod.Spec.NodeName)
}

func podKey(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

// markDirty notes that a node's free resources may have changed.
func (f *fleet) markDirty(node string) {
	if f.dirty == nil {
		f.dirty = map[string]bool{}
	}
	f.dirty[node] = true
}

// enter adds an instance. The lock is held.
func (e *entry) enter() {
	b := e.backend
	b.entries[e.instance.ID] = e
	if e.pod == nil {
		e.beside = b.fleet.beside[e.instance.Function].Resources
	}
	node := e.instance.Node
	if b.fleet.instances[node] == nil {
		b.fleet.instances[node] = map[*entry]bool{}
	}
	b.fleet.instances[node][e] = true
	b.fleet.markDirty(node)
}

// drop removes an instance. The lock is held.
func (e *entry) drop() {
	b := e.backend
	delete(b.entries, e.instance.ID)
	if b.written[e.namespace] != nil && !(certificates{b}).inhabited(e.namespace) {
		delete(b.written, e.namespace)
	}
	b.fleet.forget(b.options.Now())
	node := e.instance.Node
	if delete(b.fleet.instances[node], e); len(b.fleet.instances[node]) == 0 {
		delete(b.fleet.instances, node)
	}
	b.fleet.markDirty(node)
}

// usable reports whether the instances of at least one function tolerate a node's taints.
func (f *fleet) usable(n *nodes.Node) bool {
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
// what other pods leave of the node.
func (b *Backend) Nodes(context.Context) ([]cluster.Node, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	if b.fleet.offers == nil {
		b.offerAll()
	}
	for name := range b.fleet.dirty {
		if i, ok := b.fleet.at[name]; ok {
			b.fleet.offers[i] = b.offer(b.fleet.nodes[name])
		}
	}
	clear(b.fleet.dirty)
	return slices.Clone(b.fleet.offers), nil
}

// GPUs lists the inventories of the nodes for instances that have one.
func (b *Backend) GPUs() (all []gpu.Inventory) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.fleet.all() {
		if i := b.fleet.inventory(n); len(i.Devices) > 0 && b.selector.Matches(labels.Set(n.Labels)) {
			all = append(all, i)
		}
	}
	return all
}

// offerAll calculates the result of Nodes from scratch. The lock is held.
func (b *Backend) offerAll() {
	f := &b.fleet
	f.offers, f.at = make([]cluster.Node, 0, len(f.nodes)), make(map[string]int, len(f.nodes))
	for _, n := range f.all() {
		if n.Ready && !n.Cordoned && b.selector.Matches(labels.Set(n.Labels)) && f.usable(n) {
			f.at[n.Name] = len(f.offers)
			f.offers = append(f.offers, b.offer(n))
		}
	}
	clear(f.dirty)
}

// offer returns what a node has for instances. The lock is held.
func (b *Backend) offer(n *nodes.Node) cluster.Node {
	others, pods := b.fleet.ledger.Taken(n.Name)
	// The next instance's pod brings its sidecars and overhead, too.
	total := n.Allocatable.Sub(others).Sub(b.fleet.next)
	var held cluster.Resources
	ours := b.fleet.instances[n.Name]
	for e := range ours {
		held = held.Add(e.instance.Holds())
		total = total.Sub(e.beside)
		if e.instance.Parked {
			// Kubernetes counts a parked instance's CPU; Holds does not.
			total.CPU -= podspec.ParkedCPU
		}
	}
	total.CPU, total.Memory = max(0, total.CPU), max(0, total.Memory)
	if n.MaxPods > 0 && pods+len(ours) >= n.MaxPods {
		// The node takes no further pod, however small.
		total.CPU, total.Memory = min(total.CPU, held.CPU), min(total.Memory, held.Memory)
	}
	free := total.Sub(held)
	for e := range ours {
		free.CPU -= max(0, e.boost-e.instance.Config.CPU) // Until it is ready.
	}
	usable := b.fleet.gpus(n, "")
	devices := b.fleet.claimed(n.Name, usable.Rooms(b.fleet.heldGPUs(n.Name)))
	if len(devices) > 0 {
		all, left := cluster.SumDevices(devices)
		total.GPU, total.GPUMemory, free.GPU, free.GPUMemory = all.GPU, all.GPUMemory, left.GPU, left.GPUMemory
	}
	claimWatch{b}.sayOverfull(n, devices)
	return cluster.Node{Name: n.Name, Type: n.Type, Total: total, Devices: devices, Free: cluster.Resources{
		CPU: max(0, free.CPU), GPU: max(0, free.GPU), Memory: max(0, free.Memory), GPUMemory: max(0, free.GPUMemory),
	}}
}
