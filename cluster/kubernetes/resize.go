package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

const (
	// resizePatience is how long a kubelet may take to change a quota.
	resizePatience = 10 * time.Second
	// refusalHolds is how long a node is not asked again that can change none, as one
	// with the static CPU manager: each time would be two writes for nothing. Neither
	// is a cluster that has no such request.
	refusalHolds = 10 * time.Minute
)

// refusal is why a node changes no quotas, and since when that is known.
type refusal struct {
	why error
	at  time.Time
}

// anyNode stands for all nodes in what is known of refusals.
const anyNode = ""

// errInfeasible is what errors wrap that say that a node can never do it.
var errInfeasible = errors.New("its node refuses")

// Resize has the kubelet give a running instance another CPU quota. A next provider
// finds it with that: the pod's own resources tell.
func (b *Backend) Resize(ctx context.Context, id cluster.InstanceID, config cluster.Config) error {
	return b.change(ctx, "resize", id, config.CPU, func(in *cluster.Instance) error {
		if err := resizable(in.InstanceSpec, config); err != nil {
			return err
		}
		in.Config, in.Parked = config, false
		return nil
	})
}

// Park has the kubelet take all of an instance's CPU quota but for what it needs to
// say that it is well. A share of a GPU cannot be given back while it runs.
func (b *Backend) Park(ctx context.Context, id cluster.InstanceID) error {
	return b.change(ctx, "park", id, podspec.ParkedCPU, func(in *cluster.Instance) error {
		switch {
		case in.State != cluster.Ready:
			return fmt.Errorf("it is %s; only an instance that is ready can be parked", in.State)
		case in.Config.GPU > 0:
			return errors.New("its share of a GPU cannot be given back while it runs")
		case in.Config.CPU <= podspec.ParkedCPU:
			return fmt.Errorf("it has no more than the %d millicores that a parked instance keeps", podspec.ParkedCPU)
		}
		in.Parked = true
		return nil
	})
}

// change sets an instance's quota to so many millicores; allow says how that changes
// the instance, or why it must not be.
func (b *Backend) change(ctx context.Context, what string, id cluster.InstanceID, millicores int, allow func(*cluster.Instance) error) error {
	e, err := b.find(id)
	if err != nil {
		return err
	}
	if e == nil || !isClosed(e.begun) {
		return noInstance(what, id)
	}
	if err := e.changeShare(ctx, millicores, allow); err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	return nil
}

func (e *entry) changeShare(ctx context.Context, millicores int, allow func(*cluster.Instance) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	before, after, err := e.beginResize(allow)
	if err != nil {
		return err
	}
	was := quota(before)
	if was != millicores {
		err = e.setQuota(ctx, millicores)
	}
	switch {
	case errors.Is(err, errInfeasible):
		e.backend.refused(before.Node, err)
	case errors.Is(err, ErrNoResize):
		e.backend.refused(anyNode, err)
	}
	if err != nil && !errors.Is(err, ErrNoResize) && was != millicores {
		// As it was: also where the kubelet has not heard of it yet.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), resizePatience)
		defer cancel()
		if _, undone := e.patchQuota(undo, was); undone != nil && !apierrors.IsNotFound(undone) {
			err = errors.Join(err, fmt.Errorf("and its quota may have changed: %w", undone))
		}
	}
	e.endResize(before, after, err == nil)
	return err
}

// beginResize claims an instance for a change and holds the larger share of both.
func (e *entry) beginResize(allow func(*cluster.Instance) error) (before, after cluster.Instance, err error) {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	before, after = e.instance, e.instance
	switch {
	case b.entries[e.instance.ID] != e:
		return before, after, errors.New("it has exited")
	case e.resizing:
		return before, after, errors.New("its share is being changed already")
	}
	if err := allow(&after); err != nil {
		return before, after, err
	}
	if e.pod != nil && silent(e.pod) && quota(after) != quota(before) {
		return before, after, errSilent
	}
	for _, node := range []string{anyNode, after.Node} {
		if r, ok := b.fleet.refusals[node]; ok && b.options.Now().Sub(r.at) < refusalHolds {
			return before, after, r.why
		}
	}
	e.resizing = true
	if held := after.Holds(); held.CPU > before.Holds().CPU {
		e.instance.Config, e.instance.Parked = after.Config, after.Parked
		b.fleet.touch(e.instance.Node)
	}
	return before, after, nil
}

// silent reports whether a node says of a pod that it runs and not what it may use. The
// API server takes it that such a node cannot change that, and refuses. It may also not
// have come to it yet.
func silent(pod *corev1.Pod) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running != nil {
			return c.Resources == nil
		}
	}
	return false
}

// errSilent is why nothing is asked of a node that is silent.
var errSilent = errors.New("its node does not say what it may use: that takes a kubelet of Kubernetes 1.33 or later")

// refused notes that a node changes no quotas.
func (b *Backend) refused(node string, why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fleet.refusals == nil {
		b.fleet.refusals = map[string]refusal{}
	}
	b.fleet.refusals[node] = refusal{why, b.options.Now()}
}

// endResize settles what the instance has.
func (e *entry) endResize(before cluster.Instance, after cluster.Instance, done bool) {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	e.resizing = false
	settled := before
	if done {
		settled = after
	}
	e.instance.Config, e.instance.Parked = settled.Config, settled.Parked
	b.fleet.touch(e.instance.Node)
	if done && b.entries[e.instance.ID] == e && (before.Config != after.Config || before.Parked != after.Parked) {
		b.tell(e.instance)
	}
}

// quota is what an instance's container may use now, in millicores.
func quota(in cluster.Instance) int {
	if in.Parked {
		return podspec.ParkedCPU
	}
	return in.Config.CPU
}

// setQuota changes what the instance's container may use, and waits until it holds.
func (e *entry) setQuota(ctx context.Context, millicores int) error {
	b := e.backend
	ctx, cancel := context.WithTimeout(ctx, resizePatience)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	patched, err := e.patchQuota(ctx, millicores)
	if err != nil {
		return err
	}
	version := parse(patched.ResourceVersion)
	for {
		b.mu.Lock()
		pod, changed, seen := e.pod, e.changed, e.version
		b.mu.Unlock()
		if isClosed(e.gone) {
			return errors.New("it has exited")
		}
		if pod != nil && seen >= version {
			if done, err := settled(pod, millicores); done || err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("its node has not changed the quota within %v", resizePatience)
		}
	}
}

// settled reports whether a container has the quota that its pod says, or why it will
// not. A kubelet that tells nothing of it has done it with the pod.
func settled(pod *corev1.Pod, millicores int) (bool, error) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue {
			if c.Reason == corev1.PodReasonInfeasible {
				return false, fmt.Errorf("%w: %s: %s", errInfeasible, c.Reason, c.Message)
			}
			return false, fmt.Errorf("its node has no room: %s: %s", c.Reason, c.Message)
		}
		if c.Type == corev1.PodResizeInProgress && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonError {
			return false, fmt.Errorf("its node fails: %s", c.Message)
		}
	}
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].Resources == nil {
		return true, nil
	}
	has := pod.Status.ContainerStatuses[0].Resources
	limit := has.Limits.Cpu().MilliValue()
	return limit == int64(millicores), nil
}

// patchQuota asks the API server for it.
func (e *entry) patchQuota(ctx context.Context, millicores int) (*corev1.Pod, error) {
	b := e.backend
	name, _, err := podspec.SplitName(e.instance.Function)
	if err != nil {
		return nil, err
	}
	amount := corev1.ResourceList{corev1.ResourceCPU: podspec.CPU(millicores)}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": name, "resources": corev1.ResourceRequirements{Requests: amount, Limits: amount},
	}}}})
	if err != nil {
		return nil, err
	}
	pod, err := b.options.Client.CoreV1().Pods(e.namespace).Patch(ctx, string(e.instance.ID), types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.ManagedBy}, "resize")
	if err != nil && (apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) && e.exists(ctx)) {
		b.noted.Do(func() {
			b.log.Warn().Msg("instances keep the CPU quota that they started with: " + ErrNoResize.Error())
		})
		return nil, ErrNoResize
	}
	return pod, err
}

// exists tells a pod that is not there from a subresource that is not.
func (e *entry) exists(ctx context.Context) bool {
	_, err := e.backend.options.Client.CoreV1().Pods(e.namespace).Get(ctx, string(e.instance.ID), metav1.GetOptions{})
	return err == nil
}

// resizable refuses a config that differs in more than the quota.
func resizable(spec cluster.InstanceSpec, config cluster.Config) error {
	same := spec.Config
	same.CPU = config.CPU
	switch {
	case config.CPU <= podspec.ParkedCPU:
		return fmt.Errorf("a quota of %d millicores: it must be above %d", config.CPU, podspec.ParkedCPU)
	case same != config:
		return fmt.Errorf("from %v to %v more than its CPU quota would change", spec.Config, config)
	case spec.Config.Threads() != config.Threads():
		return fmt.Errorf("it has %d threads, with %d millicores it would have %d", spec.Config.Threads(), config.CPU, config.Threads())
	}
	return nil
}
