package nodes

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
)

// Ledger counts what pods that are not instances take of each node. Its zero value is
// empty. It is not safe for concurrent use.
type Ledger struct {
	pods  map[string]held
	nodes map[string]taken
}

type held struct {
	node string
	cluster.Resources
	gpus int
}

type taken struct {
	cluster.Resources
	pods, gpus int
}

// Put takes in a pod's state under a key that is unique to the pod.
func (l *Ledger) Put(key string, pod *corev1.Pod) {
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if over || pod.Spec.NodeName == "" {
		l.Delete(key)
		return
	}
	now := held{pod.Spec.NodeName, Requests(pod), Granted(pod)}
	if l.pods[key] == now {
		return
	}
	l.Delete(key)
	if l.pods == nil {
		l.pods, l.nodes = map[string]held{}, map[string]taken{}
	}
	l.pods[key] = now
	t := l.nodes[now.node]
	l.nodes[now.node] = taken{t.Add(now.Resources), t.pods + 1, t.gpus + now.gpus}
}

// Delete forgets a pod.
func (l *Ledger) Delete(key string) {
	was, ok := l.pods[key]
	if !ok {
		return
	}
	delete(l.pods, key)
	t := l.nodes[was.node]
	if t.pods == 1 {
		delete(l.nodes, was.node)
		return
	}
	l.nodes[was.node] = taken{t.Sub(was.Resources), t.pods - 1, t.gpus - was.gpus}
}

// GPUs returns how many whole GPUs of NVIDIA's device plugin the pods have on a node.
func (l *Ledger) GPUs(node string) int { return l.nodes[node].gpus }

// Taken returns what the pods take of a node, and their number.
func (l *Ledger) Taken(node string) (cluster.Resources, int) {
	t := l.nodes[node]
	return t.Resources, t.pods
}
