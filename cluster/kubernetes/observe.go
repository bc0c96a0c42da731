package kubernetes

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

// exitedMemory is how long the backend remembers that an instance has exited.
const exitedMemory = 10 * time.Minute

// podSeen takes in a pod's state.
func (b *Backend) podSeen(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	in, ours := b.owns(pod)
	if !ours {
		b.fleet.put(pod)
		return
	}
	if _, exited := b.exited[in.ID]; exited {
		b.cleanUp(pod)
		return
	}
	e := b.entries[in.ID]
	if e == nil {
		b.discover(in, pod)
		return
	}
	if e.uid != "" && e.uid != pod.UID {
		return // A later pod of the same name is not this instance's.
	}
	if version := parse(pod.ResourceVersion); version >= e.version {
		e.take(pod, version, in.Device())
		e.advance(in)
		e.notify()
	}
}

// take sets the pod that runs an instance. The lock is held.
func (e *entry) take(pod *corev1.Pod, version uint64, device string) {
	e.uid, e.version, e.pod, e.device = pod.UID, version, pod, device
	if e.boost > 0 && podspec.StartingCPU(pod) == 0 {
		e.setBoost(0) // This or another replica has ended it.
	}
	e.beside = nodes.Beside(pod, podspec.ContainerName(pod))
	e.backend.fleet.learn(e.instance.Function, e.beside, e.backend.options.Now())
}

// owns reads the instance from a pod; false if the pod is not an instance's. The lock is
// held.
func (b *Backend) owns(pod *corev1.Pod) (cluster.Instance, bool) {
	if !podspec.IsModel(pod) || !b.allowed(pod.Namespace) {
		return cluster.Instance{}, false
	}
	in, err := podspec.ReadModel(pod)
	if err != nil && !b.unreadable[pod.UID] {
		b.unreadable[pod.UID] = true
		b.log.Warn().Err(err).Msg("a pod has the labels of an instance but cannot be read as one; it is left alone")
	}
	return in, err == nil
}

func (b *Backend) allowed(namespace string) bool {
	return b.options.Namespaces == nil || slices.Contains(b.options.Namespaces(), namespace)
}

// discover takes in an instance that this replica did not start. The lock is held.
func (b *Backend) discover(in cluster.Instance, pod *corev1.Pod) {
	seen := podspec.Observe(pod)
	if seen.State == cluster.Exited {
		b.rememberExit(in.ID)
		b.cleanUp(pod)
		return
	}
	e := b.newEntry(in, pod.Namespace)
	e.take(pod, parse(pod.ResourceVersion), in.Device())
	close(e.begun)
	e.enter()
	if cpu := podspec.StartingCPU(pod); cpu > 0 {
		e.setBoost(cpu)
	}
	if seen.State != cluster.Starting {
		e.instance.State, e.instance.Reason = seen.State, seen.Reason
		e.instance.ReadyAt = seen.ReadyAt
	}
	b.emit(e.instance)
	if e.instance.State == cluster.Starting || e.boost > 0 {
		b.begin(func() {
			e.await()
			(&boosting{of: e}).end()
		})
	}
}

// cleanUp handles a pod whose instance has exited. It counts the pod's requests until the
// pod is gone, and deletes the pod if nobody has. The lock is held.
func (b *Backend) cleanUp(pod *corev1.Pod) {
	b.fleet.put(pod)
	if pod.DeletionTimestamp == nil {
		b.begin(func() { b.remove(pod.Namespace, pod.Name, pod.UID, 0) })
	}
}

// ranks orders the states: an instance never returns to an earlier one.
var ranks = map[cluster.State]int{cluster.Starting: 0, cluster.Ready: 1, cluster.Stopping: 2, cluster.Exited: 3}

// advance updates an instance from its pod; in is the instance as read from the pod. The
// lock is held.
func (e *entry) advance(in cluster.Instance) {
	b := e.backend
	before := e.instance
	now := &e.instance
	b.fleet.markDirty(now.Node)
	if !e.resizing {
		if now.Parked = in.Parked; !in.Parked {
			now.Config.CPU, now.Config.Most = in.Config.CPU, in.Config.Most
		}
	}
	if in.Role == cluster.Shadow && now.Role == in.Role {
		now.Body = in.Body // See Pair.
	}
	if in.Address != "" {
		now.Network, now.Address = in.Network, in.Address
	}
	seen := podspec.Observe(e.pod)
	if seen.State == cluster.Exited {
		e.judge(seen)
		e.exit(seen.Reason)
		if e.pod.DeletionTimestamp == nil {
			b.cleanUp(e.pod)
		}
		return
	}
	if ranks[seen.State] > ranks[now.State] {
		now.State, now.Reason = seen.State, seen.Reason
		if seen.State == cluster.Ready {
			now.ReadyAt = b.options.Now()
			e.admitted()
		}
	}
	if before.State != now.State || before.Parked != now.Parked || before.Config != now.Config || before.Body != now.Body {
		b.emit(*now)
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
	e.admitted()
	b.emit(e.instance)
	e.notify()
}

// exit removes an instance and reports that it has exited. The lock is held.
func (e *entry) exit(why string) {
	b := e.backend
	id := e.instance.ID
	if b.entries[id] != e {
		return
	}
	e.drop()
	b.rememberExit(id)
	e.instance.State, e.instance.Reason = cluster.Exited, why
	b.emit(e.instance)
	close(e.gone)
	e.notify()
}

// rememberExit notes that an instance has exited. The lock is held.
func (b *Backend) rememberExit(id cluster.InstanceID) {
	now := b.options.Now()
	b.exited[id] = now
	for id, at := range b.exited { // Each call checks a few entries in random order.
		if now.Sub(at) < exitedMemory {
			break
		}
		delete(b.exited, id)
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
	delete(b.unreadable, pod.UID)
	b.refusals.Freed(pod.Namespace)
	e := b.entries[cluster.InstanceID(pod.Name)]
	if e == nil || e.namespace != pod.Namespace || e.uid != "" && e.uid != pod.UID || !podspec.IsModel(pod) {
		return
	}
	e.judge(podspec.Observe(pod))
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

// parse reads a resource version. Kubernetes' own storage uses numbers. For any other
// version it returns 0, so the state that arrives last counts.
func parse(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

func noInstance(what string, id cluster.InstanceID) error {
	return fmt.Errorf("%s %s: no such instance", what, id)
}
