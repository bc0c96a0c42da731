package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	openfaas "github.com/openfaas/faas-provider/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/store"
)

// Target receives changes. *provider.Server implements it.
type Target interface {
	// Adopt makes a function run as f says. It does nothing if the function already
	// runs so.
	Adopt(ctx context.Context, f store.Function) error
	// Forget ends a function. It does nothing for an unknown one.
	Forget(ctx context.Context, namespace, name string) error
}

// Watching configures Watch.
type Watching struct {
	Target Target
	// Leading reports whether this replica gives revisions and writes status; nil means
	// always.
	Leading func() bool
	// Status returns a function's present state, by its full name. Problem returns the
	// reason why the function is not served as it should be, "" if there is none. The
	// leader calls both once a second for each function.
	Status  func(name string) (provider.Status, bool)
	Problem func(name string) string
	// Rollout returns how a function's rollouts do, by its full name; nil for none.
	Rollout func(name string) provider.RolloutSummary
	// RollOut begins the gradual rollout of a deployment that kubectl has made, with its image's annotations, as
	// provider.Rollouts.Begin; nil applies all at once. Only the leader calls it.
	RollOut func(ctx context.Context, d openfaas.FunctionDeployment) (gradual bool, err error)
	// TakeBack ends the gradual rollout of a function's later revision than present, which RollOut began: the object asks
	// for another one. Nil if RollOut is. Only the leader calls it.
	TakeBack func(ctx context.Context, namespace, name string, present uint64) error
	// Resolved returns what a revision of a function, by its full name, has found in its
	// image; nil, and nil results, mean nothing.
	Resolved func(name string, revision uint64) *v1alpha1.ResolvedImage
	// Recount marks one of a model's pods with a text that no pod had before, so that
	// Kubernetes calculates PodDisruptionBudgets again; nil for functions without pods.
	Recount func(ctx context.Context, name, mark string) error
	// Decisions are written as events of the functions while this replica leads; nil for none.
	Decisions *decisions.Log
	// Defaults reads the images' annotations for specs that kubectl has changed; nil
	// for none.
	Defaults provider.Defaults
}

// workers is the number of functions whose changes are handled at the same time. A change
// that fails is tried again after firstTry, and then at twice the interval each time, up
// to lastTry.
const (
	workers  = 8
	firstTry = 200 * time.Millisecond
	lastTry  = 2 * time.Minute
	// downloadLook is the time between two looks whether a function's model is here.
	downloadLook = time.Second
)

// managerLeader owns the fields that the leader writes: revisions and status.
const managerLeader = v1alpha1.ManagedBy + "-leader"

// watcher carries changes of the objects to a server.
type watcher struct {
	*Objects
	Watching
	queue    workqueue.TypedRateLimitingInterface[string]
	recorder recorder

	mu sync.Mutex
	// outcomes has the outcome of each object's latest change, by key.
	outcomes map[string]outcome
	// latest has the deployment that this replica has adopted last of each function, by
	// key.
	latest map[string]latest
	// rolling has the keys of the objects whose spec, present or earlier, is rolled out gradually.
	rolling map[string]bool
	// unkept has the revision of each object that kubectl changed last, and the one before, until it is adopted, by key.
	unkept map[string][]store.Revision

	// scales has what this replica publishes of each function while it leads, by key. Only
	// report uses it. noScale is the time until which nothing is published, nil for none: the
	// definition of functions has no field for it.
	scales  map[string]*published
	noScale atomic.Pointer[time.Time]
}

// latest is the adopted deployment of the object with the UID of.
type latest struct {
	of   types.UID
	what *v1alpha1.Deployed
}

// Watch carries changes of functions to a server until ctx ends. It begins with all
// functions, even those that the server has restored.
func (s *Objects) Watch(ctx context.Context, o Watching) error {
	w := &watcher{Objects: s, Watching: o, outcomes: map[string]outcome{}, latest: map[string]latest{}, rolling: map[string]bool{}, unkept: map[string][]store.Revision{}, scales: map[string]*published{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstTry, lastTry))}
	if w.Leading == nil {
		w.Leading = func() bool { return true }
	}
	functions, err := s.functions.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.enqueue, DeleteFunc: w.enqueue,
		UpdateFunc: func(_, now any) { w.enqueue(now) }})
	if err != nil {
		return fmt.Errorf("following functions: %w", err)
	}
	defer func() { _ = s.functions.RemoveEventHandler(functions) }() // It can fail only if there is no such handler.
	namespaces, err := s.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: w.namespaceChanged, DeleteFunc: w.namespaceChanged, UpdateFunc: w.namespaceUpdated})
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
	work.Go(func() { w.recorder.follow(ctx, w.Decisions, w.Leading, w.Lookup) })
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

// namespaceUpdated queues the functions of a namespace in which functions have become
// allowed or forbidden.
func (w *watcher) namespaceUpdated(before, now any) {
	b, ok := before.(*corev1.Namespace)
	n, okay := now.(*corev1.Namespace)
	if ok && okay && IsFunctionNamespace(b) != IsFunctionNamespace(n) {
		w.namespaceChanged(now)
	}
}

// namespaceChanged queues the functions of a namespace.
func (w *watcher) namespaceChanged(object any) {
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

// work handles one change after another.
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

// sync brings the present state of one function to the server. again says to try again
// even if nothing changes.
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
	case w.isStale(f):
		return false // The watch brings the newer state, too.
	}
	if allowed, err := w.AllowedNow(namespace); err != nil {
		return true
	} else if !allowed {
		w.setOutcome(key, outcome{Generation: f.Generation, Reason: "NamespaceNotAllowed", Why: fmt.Sprintf("namespace %s is not for functions; allow functions in it with: kubectl annotate namespace %s %s=1", namespace, namespace, NamespaceAnnotation)})
		return w.forget(ctx, namespace, name)
	}
	if f.Overwritten() && w.Leading() {
		return w.restore(ctx, f)
	}
	r, err := w.record(f)
	switch {
	case !stamped(f, r) && w.Leading():
		return w.revise(ctx, key, f, r)
	case err != nil:
		w.setOutcome(key, outcome{Generation: f.Generation, Reason: "Invalid", Why: err.Error()})
		return false
	case !stamped(f, r):
		// The leader gives it a revision, and the watch brings it again.
		return waits(acceptedReason(f)) && scaleAccepted(ctx, w, f)
	}
	if w.Leading() && takeBack(ctx, w, key, f, r.Revision) != nil {
		return true
	}
	again = w.adopt(ctx, key, f, r)
	if w.Leading() && (Revisions{w.Objects}).forgetTried(ctx, f) != nil {
		again = true // The object has changed meanwhile, or the API server is away.
	}
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
		w.latest[key] = latest{f.UID, w.deployed(f, r)}
		delete(w.rolling, key)
		w.mu.Unlock()
		w.setOutcome(key, outcome{Generation: f.Generation, Reason: "Deployed"})
		remember(ctx, w, key, f, r.Revision)
		return false
	}
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(err, provider.ErrArriving) {
		return true
	}
	if still := new(provider.DownloadingError); errors.As(err, &still) {
		w.setOutcome(key, outcome{Generation: f.Generation, Reason: reasonDownloading, Why: err.Error()})
		w.queue.AddAfter(key, downloadLook)
		return false
	}
	if w.setOutcome(key, outcome{Generation: f.Generation, Reason: reasonRefused, Why: err.Error()}) {
		w.log.Warn().Str("function", f.Name+"."+f.Namespace).Err(err).Msg("a function changed from outside cannot be deployed")
	}
	// A refused spec may be accepted later, after a secret is created or an image pushed.
	return true
}

// deployed returns what the status is to say of an adopted deployment.
func (w *watcher) deployed(f *v1alpha1.Function, r store.Function) *v1alpha1.Deployed {
	d := &v1alpha1.Deployed{Revision: r.Revision, Spec: v1alpha1.DeployedSpec{FunctionSpec: f.Completed().Spec}}
	d.Spec.Instances = nil // It belongs to no deployment.
	if w.Resolved != nil {
		d.Spec.Resolved = w.Resolved(provider.FullName(f.Name, f.Namespace), r.Revision)
	}
	return d
}

// gone ends a function that the cache does not have. It asks the API server first,
// because the cache may not have yet what this replica has just deployed.
func (w *watcher) gone(ctx context.Context, namespace, name string) (again bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f, err := w.typed.Functions(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && f.DeletionTimestamp == nil {
		return false // The watch brings it when the cache has it.
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return true
	}
	return w.forget(ctx, namespace, name)
}

// forget ends a function at the server. It logs an error and is tried again.
func (w *watcher) forget(ctx context.Context, namespace, name string) (again bool) {
	if _, still := w.cached(namespace, name); !still {
		w.mu.Lock()
		delete(w.outcomes, namespace+"/"+name)
		delete(w.latest, namespace+"/"+name)
		delete(w.unkept, namespace+"/"+name)
		delete(w.rolling, namespace+"/"+name)
		w.mu.Unlock()
	}
	err := w.Target.Forget(ctx, namespace, name)
	if errors.Is(err, provider.ErrArriving) {
		return true
	}
	if err != nil {
		w.log.Error().Str("function", name+"."+namespace).Err(err).Msg("a deleted function could not be ended; it is tried again")
		return true
	}
	return false
}

// setOutcome keeps the outcome of a change, and reports whether it is new.
func (w *watcher) setOutcome(key string, o outcome) (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	news = w.outcomes[key] != o
	w.outcomes[key] = o
	return news
}
