package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	// resizeTimeout is how long a kubelet may take to change a quota.
	resizeTimeout = 10 * time.Second
	// refusalHolds is how long a refusal counts: of a node that cannot change quotas,
	// such as one with the static CPU manager, or of a cluster without the resize
	// subresource. Every further try would cost two writes for nothing.
	refusalHolds = 10 * time.Minute
)

// refusal is why a node changes no quotas, and when the backend learned it.
type refusal struct {
	why error
	at  time.Time
}

// anyNode is the key of fleet.refusals for the whole cluster.
const anyNode = ""

// inNamespace is the key of fleet.refusals for the pods of a namespace.
func inNamespace(name string) string { return "/" + name }

// errForbidden means that the provider has no right to resize pods.
var errForbidden = errors.New("the provider has no right to patch pods/resize")

// errInfeasible means that a node can never resize the pod.
var errInfeasible = errors.New("its node refuses")

// errClaimed means that the pod references a ResourceClaim. The API server of Kubernetes 1.36 takes any
// resize of such a pod for a change of its claims.
var errClaimed = errors.New("its pod references a ResourceClaim, and Kubernetes does not resize such pods")

// Resize makes the kubelet give a running instance another CPU quota. The next provider
// reads the quota from the pod's resources.
func (b *Backend) Resize(ctx context.Context, id cluster.InstanceID, config cluster.Config) error {
	return b.change(ctx, "resize", id, func(in *cluster.Instance) error {
		if err := resizable(in.InstanceSpec, config); err != nil {
			return err
		}
		in.Config, in.Parked = config, false
		return nil
	})
}

// Park makes the kubelet reduce an instance's CPU quota to [podspec.ParkedCPU], enough to
// answer health checks. An instance with a GPU share cannot be parked, because it cannot
// give back the share while it runs.
func (b *Backend) Park(ctx context.Context, id cluster.InstanceID) error {
	return b.change(ctx, "park", id, func(in *cluster.Instance) error {
		switch {
		case in.State != cluster.Ready:
			return fmt.Errorf("it is %s; only an instance that is ready can be parked", in.State)
		case in.Config.GPU > 0:
			return errors.New("it has a share of a GPU, which it cannot give back while it runs")
		case in.Config.Quota() <= podspec.ParkedCPU:
			return fmt.Errorf("it has no more than the %d millicores that a parked instance keeps", podspec.ParkedCPU)
		}
		in.Parked = true
		return nil
	})
}

// change sets an instance's quota. allow applies the change to the
// instance, or says why it is not allowed.
func (b *Backend) change(ctx context.Context, what string, id cluster.InstanceID, allow func(*cluster.Instance) error) error {
	e, err := b.find(id)
	if err != nil {
		return err
	}
	if e == nil || !isClosed(e.begun) {
		return noInstance(what, id)
	}
	if pod := e.snapshot().pod; pod != nil && len(pod.Spec.ResourceClaims) > 0 {
		return fmt.Errorf("%s %s: %w", what, id, errClaimed)
	}
	if err := e.changeShare(ctx, allow); err != nil {
		return fmt.Errorf("%s %s: %w", what, id, err)
	}
	return nil
}

func (e *entry) changeShare(ctx context.Context, allow func(*cluster.Instance) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := (&boosting{of: e}).await(ctx); err != nil {
		return err
	}
	before, after, err := e.beginResize(allow)
	if err != nil {
		return err
	}
	was, next := podspec.QuotaOf(before.InstanceSpec), podspec.QuotaOf(after.InstanceSpec)
	if was != next {
		err = e.setQuota(ctx, next)
		e.noteRefusal(before.Node, err)
	}
	if err != nil && !errors.Is(err, ErrNoResize) && !errors.Is(err, errForbidden) && was != next {
		// Restore the old quota, even if the kubelet has not seen the new one yet.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), resizeTimeout)
		defer cancel()
		if _, undone := e.patchQuota(undo, was); undone != nil && !apierrors.IsNotFound(undone) {
			err = errors.Join(err, fmt.Errorf("and its quota may have changed: %w", undone))
		}
	}
	e.endResize(before, after, err == nil)
	return err
}

// beginResize marks an instance as resizing and reserves the larger of both shares.
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
	if e.pod != nil && unreported(e.pod) && podspec.QuotaOf(after.InstanceSpec) != podspec.QuotaOf(before.InstanceSpec) {
		return before, after, errUnreported
	}
	for _, node := range []string{anyNode, inNamespace(e.namespace), after.Node} {
		if r, ok := b.fleet.refusals[node]; ok && b.options.Now().Sub(r.at) < refusalHolds {
			return before, after, r.why
		}
	}
	e.resizing = true
	if held := after.Holds(); held.CPU > before.Holds().CPU {
		e.instance.Config, e.instance.Parked = after.Config, after.Parked
		b.fleet.markDirty(e.instance.Node)
	}
	return before, after, nil
}

// unreported reports whether a node reports that a pod runs but not its resources. The API
// server takes it that such a node cannot resize, and refuses. The node may also only not
// have reported them yet.
func unreported(pod *corev1.Pod) bool {
	s := podspec.Status(pod)
	return s != nil && s.State.Running != nil && s.Resources == nil
}

// errUnreported refuses a resize on a node that does not report the pod's resources.
var errUnreported = errors.New("its node does not report its resources: upgrade the kubelet to Kubernetes 1.33 or later")

// noteRefusal notes that a node, a namespace or the cluster changes no quotas, if an error says so, or that all of them
// do, if err is nil.
func (e *entry) noteRefusal(node string, err error) {
	b := e.backend
	b.mu.Lock()
	defer b.mu.Unlock()
	where := node
	switch {
	case err == nil:
		for _, where := range []string{anyNode, inNamespace(e.namespace), node} {
			delete(b.fleet.refusals, where)
		}
		return
	case errors.Is(err, errInfeasible), errors.Is(err, errUnreported):
	case errors.Is(err, ErrNoResize):
		where = anyNode
	case errors.Is(err, errForbidden):
		where = inNamespace(e.namespace)
	default:
		return
	}
	b.fleet.refuse(where, refusal{err, b.options.Now()})
}

// refuse notes that a node, a namespace or the cluster changes no quotas.
func (f *fleet) refuse(where string, r refusal) {
	if f.refusals == nil {
		f.refusals = map[string]refusal{}
	}
	f.refusals[where] = r
}

// endResize gives the instance its new share, or its old one if the resize failed.
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
	b.fleet.markDirty(e.instance.Node)
	if done && b.entries[e.instance.ID] == e && (before.Config != after.Config || before.Parked != after.Parked) {
		b.emit(e.instance)
	}
}

// setQuota changes the quota of the instance's container and waits until it is in force.
func (e *entry) setQuota(ctx context.Context, quota podspec.Quota) error {
	b := e.backend
	ctx, cancel := context.WithTimeout(ctx, resizeTimeout)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	patched, err := e.patchQuota(ctx, quota)
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
			if done, err := settled(pod, quota); done || err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("its node has not changed the quota within %v", resizeTimeout)
		}
	}
}

// settled reports whether the container has the quota of the pod's spec, or returns why it
// never will. If the kubelet does not report the container's resources, the pod's spec
// counts.
func settled(pod *corev1.Pod, quota podspec.Quota) (bool, error) {
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
	s := podspec.Status(pod)
	if s == nil || s.Resources == nil {
		return true, nil
	}
	return s.Resources.Limits.Cpu().MilliValue() == int64(quota.Limit), nil
}

// patchQuota asks the API server to resize the pod.
func (e *entry) patchQuota(ctx context.Context, quota podspec.Quota) (*corev1.Pod, error) {
	b := e.backend
	name, _, err := podspec.SplitName(e.instance.Function)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": name, "resources": quota.Requirements(),
	}}}})
	if err != nil {
		return nil, err
	}
	pod, err := b.options.Client.CoreV1().Pods(e.namespace).Patch(ctx, string(e.instance.ID), types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: v1alpha1.ManagedBy}, "resize")
	if err != nil && (apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) && e.exists(ctx)) {
		b.noResize.Do(func() {
			b.log.Warn().Msg("instances keep their initial CPU quota: " + ErrNoResize.Error())
		})
		return nil, ErrNoResize
	}
	if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "pods/resize") {
		b.forbidden.Do(func() {
			b.log.Warn().Err(err).Msg("instances keep their initial CPU quota; other instances start instead")
		})
		return nil, fmt.Errorf("%w in namespace %s", errForbidden, e.namespace)
	}
	return pod, err
}

// exists reports whether the pod exists. If it does, a 404 means that the subresource
// does not.
func (e *entry) exists(ctx context.Context) bool {
	_, err := e.backend.options.Client.CoreV1().Pods(e.namespace).Get(ctx, string(e.instance.ID), metav1.GetOptions{})
	return err == nil
}

// resizable refuses a config that differs in more than the quota.
func resizable(spec cluster.InstanceSpec, config cluster.Config) error {
	if config.Quota() <= podspec.ParkedCPU {
		return fmt.Errorf("a quota of %d millicores: it must be above %d", config.Quota(), podspec.ParkedCPU)
	}
	return spec.Config.CheckResize(config)
}
