package kubernetes

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/gpu"
)

// remembered is how long it is remembered that an instance has exited.
const remembered = 10 * time.Minute

// podSeen takes in a pod's state.
func (b *Backend) podSeen(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, ours := b.owns(pod)
	if !ours {
		b.fleet.put(pod)
		return
	}
	if _, over := b.over[in.ID]; over {
		b.leftOver(pod)
		return
	}
	e := b.entries[in.ID]
	if e == nil {
		b.discover(in, pod)
		return
	}
	if e.uid != "" && e.uid != pod.UID {
		return // A later pod of the same name is not ours.
	}
	if version := parse(pod.ResourceVersion); version >= e.version {
		e.uid, e.version, e.pod, e.device = pod.UID, version, pod, pod.Annotations[gpu.DeviceAnnotation]
		e.advance(in)
		e.touch()
	}
}

// owns reads a pod; false if it is not an instance's. The lock is held.
func (b *Backend) owns(pod *corev1.Pod) (cluster.Instance, bool) {
	if !podspec.IsModel(pod) || !b.allowed(pod.Namespace) {
		return cluster.Instance{}, false
	}
	in, err := podspec.ReadModel(pod)
	if err != nil && !b.strange[pod.UID] {
		b.strange[pod.UID] = true
		b.log.Warn().Err(err).Msg("a pod says that it is an instance and is not; it is left alone")
	}
	return in, err == nil
}

func (b *Backend) allowed(namespace string) bool {
	return b.options.Namespaces == nil || slices.Contains(b.options.Namespaces(), namespace)
}

// discover takes in an instance that this replica has not started. The lock is held.
func (b *Backend) discover(in cluster.Instance, pod *corev1.Pod) {
	seen := podspec.Observe(pod)
	if seen.State == cluster.Exited {
		b.forget(in.ID)
		b.leftOver(pod)
		return
	}
	e := b.newEntry(in, pod.Namespace)
	e.uid, e.version, e.pod, e.device = pod.UID, parse(pod.ResourceVersion), pod, pod.Annotations[gpu.DeviceAnnotation]
	close(e.begun)
	e.enter()
	if seen.State != cluster.Starting {
		e.instance.State, e.instance.Reason = seen.State, seen.Reason
		e.instance.ReadyAt = seen.ReadyAt
	}
	b.tell(e.instance)
	if e.instance.State == cluster.Starting {
		b.begin(func() { e.await() })
	}
}

// leftOver sees to a pod whose instance has exited: until it is gone it takes of its
// node, and if nobody has deleted it yet, we do. The lock is held.
func (b *Backend) leftOver(pod *corev1.Pod) {
	b.fleet.put(pod)
	if pod.DeletionTimestamp == nil {
		b.begin(func() { b.remove(pod.Namespace, pod.Name, pod.UID, 0) })
	}
}

// ranks are the states in their order: an instance does not go back.
var ranks = map[cluster.State]int{cluster.Starting: 0, cluster.Ready: 1, cluster.Stopping: 2, cluster.Exited: 3}

// advance has an instance follow its pod, whose reading is in. The lock is held.
func (e *entry) advance(in cluster.Instance) {
	b := e.backend
	before := e.instance
	now := &e.instance
	b.fleet.touch(now.Node)
	if !e.resizing {
		if now.Parked = in.Parked; !in.Parked {
			now.Config.CPU = in.Config.CPU
		}
	}
	if in.Address != "" {
		now.Network, now.Address = in.Network, in.Address
	}
	seen := podspec.Observe(e.pod)
	if seen.State == cluster.Exited {
		e.exit(seen.Reason)
		if e.pod.DeletionTimestamp == nil {
			b.leftOver(e.pod)
		}
		return
	}
	if ranks[seen.State] > ranks[now.State] {
		now.State, now.Reason = seen.State, seen.Reason
		if seen.State == cluster.Ready {
			now.ReadyAt = b.options.Now()
		}
	}
	if before.State != now.State || before.Parked != now.Parked || before.Config != now.Config {
		b.tell(*now)
	}
}

// ready takes in that an instance has answered.
func (e *entry) ready() {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.instance.State != cluster.Starting {
		return
	}
	e.instance.State, e.instance.ReadyAt = cluster.Ready, b.options.Now()
	b.tell(e.instance)
	e.touch()
}

// exit tells that an instance is gone. The lock is held.
func (e *entry) exit(why string) {
	b := e.backend
	id := e.instance.ID
	if b.entries[id] != e {
		return
	}
	e.drop()
	b.forget(id)
	e.instance.State, e.instance.Reason = cluster.Exited, why
	b.tell(e.instance)
	close(e.gone)
	e.touch()
}

// forget notes that an instance is over. The lock is held.
func (b *Backend) forget(id cluster.InstanceID) {
	now := b.options.Now()
	b.over[id] = now
	for id, at := range b.over { // A few of them, in no order, are looked at each time.
		if now.Sub(at) < remembered {
			break
		}
		delete(b.over, id)
	}
}

// fail gives up an instance whose pod may still exist.
func (e *entry) fail(why string, grace time.Duration) {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries[e.instance.ID] != e {
		return
	}
	e.exit(why)
	if e.pod != nil {
		b.fleet.put(e.pod)
	}
	namespace, name, uid := e.namespace, string(e.instance.ID), e.uid
	b.begin(func() { b.remove(namespace, name, uid, grace) })
}

// podGone takes in that a pod does not exist any more.
func (b *Backend) podGone(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fleet.remove(pod)
	delete(b.strange, pod.UID)
	e := b.entries[cluster.InstanceID(pod.Name)]
	if e == nil || e.namespace != pod.Namespace || e.uid != "" && e.uid != pod.UID || !podspec.IsModel(pod) {
		return
	}
	e.exit(whyGone(e, pod))
}

func whyGone(e *entry, pod *corev1.Pod) string {
	seen := podspec.Observe(pod)
	switch {
	case seen.State == cluster.Exited:
		return seen.Reason
	case e.stopping:
		return "stopped"
	case seen.State == cluster.Stopping:
		return seen.Reason
	}
	return "deleted"
}

// parse reads a resource version. They are numbers wherever Kubernetes keeps them;
// where they are not, what came last counts.
func parse(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

func noInstance(what string, id cluster.InstanceID) error {
	return fmt.Errorf("%s %s: no such instance", what, id)
}
