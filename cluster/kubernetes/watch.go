package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/nodes"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/podspec"
)

// watch begins to follow nodes and pods, and returns once it knows all that exist. It
// follows the pods of all namespaces, because every pod takes resources of its node.
func (b *Backend) watch(ctx context.Context) error {
	nodeSource := coreinformers.NewNodeInformer(b.options.Client, 0, cache.Indexers{})
	podSource := coreinformers.NewPodInformer(b.options.Client, metav1.NamespaceAll, 0, cache.Indexers{})
	var why failures
	nodesSynced, err := b.follow(nodeSource, "nodes", &why, trimNode, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { nodeWatch{b}.seen(o.(*corev1.Node)) },
		UpdateFunc: func(_, o any) { nodeWatch{b}.seen(o.(*corev1.Node)) },
		DeleteFunc: func(o any) { nodeWatch{b}.missing(key(o)) },
	})
	if err != nil {
		return err
	}
	podsSynced, err := b.follow(podSource, "pods", &why, trimPod, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { b.podSeen(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { b.podSeen(o.(*corev1.Pod)) },
		DeleteFunc: b.podMissing,
	})
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), nodesSynced, podsSynced) {
		return fmt.Errorf("cannot read the cluster's nodes and pods: %w", errors.Join(ctx.Err(), why.last()))
	}
	return nil
}

// follow runs an informer until Close. synced reports whether all objects that existed at
// the beginning have been handled.
func (b *Backend) follow(source cache.SharedIndexInformer, what string, why *failures, trim cache.TransformFunc, handler cache.ResourceEventHandler) (synced cache.InformerSynced, err error) {
	err = errors.Join(source.SetTransform(trim), source.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		why.add(what, err)
		if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return // API servers end watches regularly.
		}
		b.log.Warn().Err(err).Str("resource", what).Msg("the watch was interrupted; it starts again")
	}))
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	registration, err := source.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", what, err)
	}
	b.background(func() { source.RunWithContext(b.ctx) })
	return registration.HasSynced, nil
}

// failures keeps why the last list or watch failed, by resource.
type failures struct {
	mu  sync.Mutex
	why map[string]error
}

func (f *failures) add(what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why == nil {
		f.why = map[string]error{}
	}
	f.why[what] = fmt.Errorf("watch %s: %w", what, err)
}

func (f *failures) last() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(slices.Collect(maps.Values(f.why))...)
}

// key returns an object's key, also if the watch missed the object's deletion.
func key(o any) string {
	k, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(o) // Objects of a watch have metadata.
	return k
}

func trimPod(o any) (any, error) {
	if pod, ok := o.(*corev1.Pod); ok {
		return podspec.Trim(pod), nil
	}
	return o, nil
}

func trimNode(o any) (any, error) {
	if node, ok := o.(*corev1.Node); ok {
		return nodes.Trim(node), nil
	}
	return o, nil
}

// podMissing takes in that a pod does not exist any more. If only a list that replaced a
// watch lacks it, the list may be old; for an instance, it asks the API server first.
func (b *Backend) podMissing(o any) {
	switch o := o.(type) {
	case *corev1.Pod:
		b.podGone(o)
	case cache.DeletedFinalStateUnknown:
		pod, ok := o.Obj.(*corev1.Pod)
		switch {
		case !ok:
		case !podspec.IsModel(pod):
			b.podGone(pod)
		default:
			b.background(func() { b.confirmPod(pod) })
		}
	}
}

// confirmPod asks the API server whether a pod exists, until it answers.
func (b *Backend) confirmPod(pod *corev1.Pod) {
	var found *corev1.Pod
	err := b.insist(func(ctx context.Context) (err error) {
		found, err = b.options.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case err == nil && (pod.UID == "" || found.UID == pod.UID): // "": the answer to its creation was lost.
		b.podSeen(podspec.Trim(found))
	case err == nil || apierrors.IsNotFound(err):
		b.podGone(pod)
	case b.ctx.Err() == nil:
		b.log.Error().Err(err).Str("pod", pod.Namespace+"/"+pod.Name).Msg("cannot find out whether a pod still exists")
	}
}
