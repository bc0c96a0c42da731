package kubernetes

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

// startingCPU is the CPU in millicores of a function's first instance until it is ready. On a quarter of a core, loading
// the engine takes four times as long, while a request waits. It is no whole core, which a kubelet with the static CPU
// manager would give exclusively.
const startingCPU = 900

// startingShare returns the CPU that the pod of an instance asks for and may use until it is ready, 0 for that of its
// config. Requests and limits stay equal: a resize must not change the pod's class of quality of service. Only an instance
// for which requests wait gets more, on a node that has room for it and has never refused to change a quota. The lock is
// held.
func startingShare(b *Backend, spec cluster.InstanceSpec, namespace string) int {
	alone := spec.Role == cluster.Body && !spec.Paired && spec.Set == "" && spec.Config.Members() == 1
	if !spec.Awaited || !alone || spec.Config.Most > 0 || spec.Config.GPU > 0 || spec.Config.CPU >= startingCPU {
		return 0
	}
	for _, where := range []string{anyNode, inNamespace(namespace), spec.Node} {
		if _, refused := b.fleet.refusals[where]; refused {
			return 0
		}
	}
	node := b.fleet.nodes[spec.Node]
	if node == nil || b.offer(node).Free.CPU < startingCPU-spec.Config.CPU { // It may have just gone.
		return 0
	}
	return startingCPU
}

// takeBoost reserves what an instance gets until it is ready, and returns it.
func (e *entry) takeBoost() int {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	e.setBoost(startingShare(b, e.instance.InstanceSpec, e.namespace))
	return e.boost
}

// setBoost sets the CPU that an instance's pod has until it is ready, 0 for that of its config. The instance counts as one
// whose share is being changed meanwhile. The lock is held.
func (e *entry) setBoost(cpu int) {
	e.boost, e.resizing = cpu, cpu > 0
	e.backend.fleet.markDirty(e.instance.Node)
}

// withoutBoost gives up the boost of an instance whose pod the API server did not create, and reports whether it
// may be created without: a quota of the namespace may have no room for the boost.
func (e *entry) withoutBoost(err error) bool {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return false
	}
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	had := e.boost > 0
	e.setBoost(0)
	return had
}

// endBoost gives an instance that is ready the quota of its config. If that fails, it keeps what it has and counts as an
// instance of that size.
func (e *entry) endBoost() {
	b := e.backend
	b.mu.Lock()
	cpu, spec := e.boost, e.instance.InstanceSpec
	there := b.entries[spec.ID] == e && !e.stopping
	b.mu.Unlock()
	if cpu == 0 || !there {
		return
	}
	err := e.setQuota(b.ctx, podspec.QuotaOf(spec))
	e.noteRefusal(spec.Node, err)
	b.mu.Lock()
	defer b.mu.Unlock()
	e.setBoost(0)
	e.notify() // A resize may wait for it.
	if err == nil || b.ctx.Err() != nil || b.entries[spec.ID] != e {
		return
	}
	b.log.Warn().Err(err).Str("instance", string(spec.ID)).Int("millicores", cpu).
		Msg("an instance keeps the CPU with which it has started")
	e.instance.Config.CPU = cpu
	b.emit(e.instance)
}
