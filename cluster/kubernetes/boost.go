package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// startingCPU is the CPU in millicores of a function's first instance until it is ready. On a quarter of a core,
// loading the engine takes four times as long, while a request waits. It is no whole core, which a kubelet with the
// static CPU manager would give exclusively.
const startingCPU = 900

const (
	// reportPatience is how long a kubelet may take to report the resources of a pod that is ready. A kubelet that
	// cannot resize never does.
	reportPatience = time.Minute
	// boostPatience is how long a kubelet may take to give a pod that is ready the quota of its config.
	boostPatience = 5 * time.Minute
	// minBoostPause and maxBoostPause bound the pause between two tries.
	minBoostPause, maxBoostPause = 500 * time.Millisecond, time.Minute
)

// startingShare returns the CPU that the pod of an instance asks for and may use until it is ready, 0 for that of its
// config. Requests and limits stay equal: a resize must not change the pod's class of quality of service. Only an
// instance for which requests wait gets more, on a node that has room for it and changes quotas, as far as that is
// known. The lock is held.
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
	switch {
	case node == nil: // It may have just gone.
		return 0
	case node.NoResize, b.offer(node).Free.CPU < startingCPU-spec.Config.CPU:
		return 0
	}
	return startingCPU
}

// lacksResize reports whether an API server cannot resize pods. If it does not say, the first resize will show it.
func lacksResize(client clientset.Interface) bool {
	list, err := client.Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil || len(list.APIResources) == 0 {
		return false
	}
	return !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "pods/resize" })
}

// setBoost sets the CPU that an instance's pod has until it is ready, 0 for that of its config. The instance counts
// as one whose share is being changed meanwhile. The lock is held.
func (e *entry) setBoost(cpu int) {
	e.boost, e.resizing = cpu, cpu > 0
	e.backend.fleet.markDirty(e.instance.Node)
}

// boosting gives an instance's pod more CPU than its config's until the instance is ready.
type boosting struct {
	of *entry
	// tries counts how often this replica has tried to take it back, since the time of the first try.
	tries int
	since time.Time
}

// begin reserves what the instance gets until it is ready, and returns it.
func (t *boosting) begin() int {
	e, b := t.of, t.of.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	e.setBoost(startingShare(b, e.instance.InstanceSpec, e.namespace))
	return e.boost
}

// refused gives it up if the API server did not create the pod, and reports whether the pod may be created without: a
// quota of the namespace may have no room for it.
func (t *boosting) refused(err error) bool {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return false
	}
	e, b := t.of, t.of.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	had := e.boost > 0
	e.setBoost(0)
	return had
}

// now reports whether the instance is ready and has more CPU than its config's. changed is closed at its next change.
func (t *boosting) now() (spec cluster.InstanceSpec, changed <-chan struct{}, boosted bool) {
	e, b := t.of, t.of.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	in := e.instance
	there := b.entries[in.ID] == e && !e.stopping && in.State == cluster.Ready
	return in.InstanceSpec, e.changed, there && e.boost > 0
}

// await waits until an instance that is ready has the CPU of its config.
func (t *boosting) await(ctx context.Context) error {
	late := time.After(resizeTimeout)
	for {
		_, changed, boosted := t.now()
		if !boosted {
			return nil
		}
		select {
		case <-changed:
		case <-late:
			return errBoosted
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errBoosted refuses a resize of an instance that has not been given its config's share yet.
var errBoosted = fmt.Errorf("its node has not taken back within %v the CPU with which it has started", resizeTimeout)

// end follows an instance that is ready until its pod has the quota of its config, or keeps what it started with. All
// replicas follow, so that the next leader ends what the one before has begun. Only the leader acts.
func (t *boosting) end() {
	b := t.of.backend
	for {
		spec, changed, boosted := t.now()
		if !boosted {
			return
		}
		pause := minBoostPause
		if b.options.Leading() {
			var ended, again bool
			if ended, again, pause = t.try(spec); ended {
				return
			}
			if !again {
				changed = nil
			}
		} else {
			t.tries = 0
		}
		select {
		case <-b.ctx.Done():
			return
		case <-changed:
		case <-time.After(pause):
		}
	}
}

// try takes back what the instance has beyond its config, or leaves it, and reports whether one of both was done.
// Otherwise it is to be tried again after a pause, or, with again, at the next change of the pod.
func (t *boosting) try(spec cluster.InstanceSpec) (ended, again bool, pause time.Duration) {
	now := t.of.backend.options.Now()
	if t.tries++; t.tries == 1 {
		t.since = now
	}
	err := t.takeBack(spec)
	switch {
	case err == nil:
		return true, false, 0
	case !isHopeless(err, now.Sub(t.since)): // What was tried changes the pod, too.
		return false, errors.Is(err, errUnreported), backoff.Pause(t.tries, minBoostPause, maxBoostPause)
	}
	return t.leave(spec, err), false, refusalHolds
}

// isHopeless reports whether a quota that could not be taken back, tried for so long, stays as it is.
func isHopeless(err error, tried time.Duration) bool {
	switch {
	case errors.Is(err, errInfeasible), errors.Is(err, ErrNoResize), errors.Is(err, errForbidden):
		return true
	case errors.Is(err, errUnreported):
		return tried >= reportPatience
	}
	return tried >= boostPatience
}

// takeBack gives the instance's pod the quota of its config. A pod whose node does not report its resources is not
// asked: its spec would change, and what it has would not.
func (t *boosting) takeBack(spec cluster.InstanceSpec) error {
	e := t.of
	pod := e.snapshot().pod
	if pod == nil {
		return errUnreported
	}
	if s := podspec.Status(pod); s == nil || s.Resources == nil {
		return errUnreported
	}
	err := e.setQuota(e.backend.ctx, podspec.QuotaOf(spec))
	e.noteRefusal(spec.Node, err)
	if err != nil {
		return err
	}
	return t.unmark()
}

// leave leaves the pod the quota with which it has started, because of why, and has the instance count as one of that
// size. It reports false if the pod's spec could not be given that quota again. The instance then counts as one that
// is still starting.
func (t *boosting) leave(spec cluster.InstanceSpec, why error) bool {
	e, b := t.of, t.of.backend
	e.noteRefusal(spec.Node, why)
	b.mu.Lock()
	cpu := e.boost
	b.mu.Unlock()
	var err error
	if !errors.Is(why, errUnreported) && !errors.Is(why, ErrNoResize) && !errors.Is(why, errForbidden) {
		err = b.insist(func(ctx context.Context) error { // Its spec may say otherwise by now.
			_, err := e.patchQuota(ctx, podspec.Quota{Request: cpu, Limit: cpu})
			return err
		})
	}
	if err == nil {
		err = t.unmark()
	}
	if b.ctx.Err() != nil || apierrors.IsNotFound(err) {
		return true
	}
	b.log.Warn().Err(errors.Join(why, err)).Str("instance", string(spec.ID)).Int("millicores", cpu).
		Msg("an instance keeps the CPU with which it has started")
	return err == nil
}

// unmark removes the pod's mark, and takes in what the pod has now.
func (t *boosting) unmark() error {
	e, b := t.of, t.of.backend
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{podspec.StartingCPUAnnotation: nil},
	}})
	if err != nil {
		return err
	}
	var pod *corev1.Pod
	pods, options := b.options.Client.CoreV1().Pods(e.namespace), metav1.PatchOptions{FieldManager: v1alpha1.ManagedBy}
	err = b.insist(func(ctx context.Context) (err error) {
		pod, err = pods.Patch(ctx, string(e.instance.ID), types.MergePatchType, patch, options)
		return err
	})
	if err == nil {
		b.podSeen(podspec.Trim(pod))
	}
	return err
}
