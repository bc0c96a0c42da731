package objects

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/store"
)

// mergePatch changes the fields that it names.
const mergePatch = types.MergePatchType

// Target is what changes reach; *provider.Server is one.
type Target interface {
	// Adopt makes a function run as it is said; to be told what it does already is
	// nothing to it.
	Adopt(ctx context.Context, f store.Function) error
	// Forget ends a function; to be told of one that it does not know, too.
	Forget(ctx context.Context, namespace, name string) error
}

// Watching is what Watch works with.
type Watching struct {
	Target Target
	// Leading reports whether this replica gives revisions and writes status.
	Leading func() bool
	// Status is what runs of a function, Problem why it is not served as it should
	// be, "" if it is. They are asked by full name, once a second by the leader.
	Status  func(name string) (provider.Status, bool)
	Problem func(name string) string
	// Defaults tells what images bring along, for what others have changed; nil for
	// nothing.
	Defaults provider.Defaults
}

// Changes of different functions are dealt with at the same time, this many; what
// fails is tried again, later each time.
const (
	workers  = 8
	firstTry = 200 * time.Millisecond
	lastTry  = 2 * time.Minute
)

// managerLeader owns the fields that the leader writes beside what users deploy.
const managerLeader = v1alpha1.ManagedBy + "-leader"

// watcher carries changes of the objects to a server.
type watcher struct {
	*Objects
	Watching
	queue    workqueue.TypedRateLimitingInterface[string]
	recorder recorder

	mu sync.Mutex
	// outcomes are what came of each object's latest change, by key.
	outcomes map[string]outcome
	// latest is what this replica has deployed last of each function, by key.
	latest map[string]latest
}

// latest is what was deployed of an object.
type latest struct {
	of   types.UID
	what *v1alpha1.Deployed
}

// Watch carries changes of functions to a server until ctx ends. The functions that
// the server has restored are heard once more.
func (s *Objects) Watch(ctx context.Context, o Watching) error {
	w := &watcher{Objects: s, Watching: o, outcomes: map[string]outcome{}, latest: map[string]latest{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstTry, lastTry))}
	if w.Leading == nil {
		w.Leading = func() bool { return true }
	}
	functions, err := s.functions.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.enqueue, DeleteFunc: w.enqueue,
		UpdateFunc: func(_, now any) { w.enqueue(now) }})
	if err != nil {
		return fmt.Errorf("following functions: %w", err)
	}
	defer func() { _ = s.functions.RemoveEventHandler(functions) }() // It can fail only if there is none.
	namespaces, err := s.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.spaceChanged, DeleteFunc: w.spaceChanged, UpdateFunc: w.spaceUpdated})
	if err != nil {
		return fmt.Errorf("following namespaces: %w", err)
	}
	defer func() { _ = s.Informer.RemoveEventHandler(namespaces) }() // As above.
	defer w.recorder.Start(s.client)()
	var work sync.WaitGroup
	for range workers {
		work.Go(func() { w.work(ctx) })
	}
	work.Go(func() { w.report(ctx) })
	<-ctx.Done()
	w.queue.ShutDown()
	work.Wait()
	return nil
}

func (w *watcher) enqueue(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		w.queue.Add(key)
	}
}

// spaceUpdated looks at the functions of a namespace that has become one of
// functions, or is not any more.
func (w *watcher) spaceUpdated(before, now any) {
	b, ok := before.(*corev1.Namespace)
	n, okay := now.(*corev1.Namespace)
	if ok && okay && IsFunctionNamespace(b) != IsFunctionNamespace(n) {
		w.spaceChanged(now)
	}
}

func (w *watcher) spaceChanged(object any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	in, err := w.functions.GetIndexer().ByIndex(cache.NamespaceIndex, name)
	if err != nil {
		return
	}
	for _, f := range in {
		w.enqueue(f)
	}
}

// work deals with one change after another.
func (w *watcher) work(ctx context.Context) {
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		if again := w.sync(ctx, key); again && ctx.Err() == nil {
			w.queue.AddRateLimited(key)
		} else {
			w.queue.Forget(key)
		}
		w.queue.Done(key)
	}
}

// sync brings one function to the server as it is now. It reports whether that is to
// be tried again though nothing changes.
func (w *watcher) sync(ctx context.Context, key string) (again bool) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return false
	}
	f, ok := w.cached(namespace, name)
	switch {
	case !ok:
		return w.gone(ctx, namespace, name)
	case f.DeletionTimestamp != nil:
		return w.forget(ctx, namespace, name)
	case w.old(f):
		return false // Its later state is heard, too.
	}
	if allowed, err := w.AllowedNow(namespace); err != nil {
		return true
	} else if !allowed {
		w.came(key, outcome{Generation: f.Generation, Reason: "NamespaceNotAllowed", Why: fmt.Sprintf("namespace %s is not one of functions; make it one with: kubectl annotate namespace %s %s=1", namespace, namespace, NamespaceAnnotation)})
		return w.forget(ctx, namespace, name)
	}
	r, err := w.record(f)
	switch {
	case !stamped(f, r) && w.Leading():
		return w.revise(ctx, key, f, r)
	case err != nil:
		w.came(key, outcome{Generation: f.Generation, Reason: "Invalid", Why: err.Error()})
		return false
	case !stamped(f, r):
		return false // The one who leads gives it a revision, and it comes again with that.
	}
	again = w.adopt(ctx, key, f, r)
	if f.Annotations[v1alpha1.ImageAnnotation] == v1alpha1.Unread && w.Leading() {
		again = w.revise(ctx, key, f, r) || again
	}
	return again
}

// adopt hands a function to the server.
func (w *watcher) adopt(ctx context.Context, key string, f *v1alpha1.Function, r store.Function) (again bool) {
	err := w.Target.Adopt(ctx, r)
	if err == nil {
		w.mu.Lock()
		w.latest[key] = latest{f.UID, &v1alpha1.Deployed{Revision: r.Revision, Spec: f.Completed().Spec}}
		w.mu.Unlock()
		w.came(key, outcome{Generation: f.Generation, Reason: "Deployed"})
		return false
	}
	if ctx.Err() != nil {
		return false
	}
	if w.came(key, outcome{Generation: f.Generation, Reason: "Refused", Why: err.Error()}) {
		w.log.Warn().Str("function", f.Name+"."+f.Namespace).Err(err).Msg("a function that others have changed cannot be deployed")
	}
	// A refused spec may be accepted later: a secret may be made, an image pushed.
	return true
}

// gone ends a function that the cache does not have. The cache may be behind what this
// replica has just deployed, so the API server is asked.
func (w *watcher) gone(ctx context.Context, namespace, name string) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f, err := w.typed.Functions(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && f.DeletionTimestamp == nil {
		return false // It comes into the cache, and is heard then.
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return true
	}
	return w.forget(ctx, namespace, name)
}

func (w *watcher) forget(ctx context.Context, namespace, name string) (again bool) {
	if _, still := w.cached(namespace, name); !still {
		w.mu.Lock()
		delete(w.outcomes, namespace+"/"+name)
		delete(w.latest, namespace+"/"+name)
		w.mu.Unlock()
	}
	if err := w.Target.Forget(ctx, namespace, name); err != nil {
		w.log.Error().Str("function", name+"."+namespace).Err(err).Msg("a function that others have deleted")
	}
	return false
}

// came keeps what came of a change, and reports whether that is news.
func (w *watcher) came(key string, o outcome) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news = w.outcomes[key] != o
	w.outcomes[key] = o
	return news
}
