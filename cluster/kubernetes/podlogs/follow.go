package podlogs

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/backoff"
)

// reopenPause is the wait before a log is opened again after its stream broke off.
const reopenPause = time.Second

// follower follows the logs of a function's pods and knows which it follows already.
type follower struct {
	*query
	ctx  context.Context
	pods cache.SharedIndexInformer
	work sync.WaitGroup

	mu sync.Mutex
	// read holds the time up to which each log was read.
	read map[types.UID]time.Time
	// followed holds the pods whose logs are being read or were read to their end.
	followed map[types.UID]bool
}

// follow emits new lines until ctx ends.
func (q *query) follow(ctx context.Context, read map[types.UID]time.Time) {
	f := &follower{query: q, ctx: ctx, read: read, followed: map[types.UID]bool{}}
	f.pods = coreinformers.NewFilteredPodInformer(q.client, q.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) { o.LabelSelector = label(q.Name) })
	_, err := f.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { f.see(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { f.see(o.(*corev1.Pod)) },
	})
	if err != nil {
		q.complain(ctx, err)
		return
	}
	f.pods.RunWithContext(ctx)
	f.work.Wait()
}

// see begins to read a pod's log once there is one.
func (f *follower) see(pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followed[pod.UID] || !f.wanted(pod) {
		return
	}
	f.followed[pod.UID] = true
	from := f.read[pod.UID]
	f.work.Go(func() { f.tail(pod, from) })
}

// tail reads a pod's log from a time on until the pod prints no more. It reopens the
// stream if it breaks off.
func (f *follower) tail(pod *corev1.Pod, from time.Time) {
	for {
		ending := f.ended(pod)
		err := f.stream(pod, &from)
		switch {
		case f.ctx.Err() != nil || apierrors.IsNotFound(err):
			return
		case err == nil && ending:
			return
		case err != nil:
			f.complain(f.ctx, err)
		}
		if !backoff.Wait(f.ctx, reopenPause) {
			return
		}
	}
}

// ended reports whether a pod has finished or is gone, so its log has an end.
func (f *follower) ended(pod *corev1.Pod) bool {
	now, there, err := f.pods.GetStore().Get(pod)
	if err != nil || !there {
		return true
	}
	current, ok := now.(*corev1.Pod)
	return !ok || current.UID != pod.UID || over(current)
}

// stream emits lines after from until the stream ends, and advances from.
func (f *follower) stream(pod *corev1.Pod, from *time.Time) error {
	since := *from
	if since.IsZero() {
		since = f.since()
	}
	stream, err := f.open(f.ctx, pod, since, true)
	if err != nil {
		return err
	}
	defer stream.Close()
	for lines := newReader(stream); ; {
		l, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case !l.time.After(*from):
			continue // It was read before: a stream begins at a full second.
		case !f.emit(f.ctx, pod.Name, l):
			return nil
		}
		*from = l.time
	}
}
