// Package objects keeps functions and their namespaces, secrets, profiles and histories as
// Kubernetes objects. It carries changes by kubectl or another replica of the provider to
// the server ([Objects.Watch]). It does not run functions, and the request path does not
// use it. Begin reading at [Open].
//
// The objects are authoritative. A server deploys first and writes the object then, as on
// one machine. The watch brings the server's own change back, and the server ignores it.
// All other changes reach the server through Watch. Only the leader gives revisions to
// specs that kubectl has changed, and writes functions' status. Reads come from an
// informer's cache, except where a comment says that they ask the API server.
package objects

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
)

// Options configures Objects.
type Options struct {
	// Config is that of the API server, Client is made from it.
	Config *rest.Config
	Client kubernetes.Interface
	// NewNamespaces says what namespaces get that faas-cli makes.
	NewNamespaces NewNamespaces
	Logger        zerolog.Logger
	// Now is the clock for revisions, time.Now if nil.
	Now func() time.Time
}

// patience is how long the API server may take for one change.
const patience = 10 * time.Second

// Objects are a cluster's functions and their namespaces: a [provider.Store]. They
// are safe for concurrent use.
type Objects struct {
	*NamespaceStore
	client     kubernetes.Interface
	typed      *v1alpha1.Client
	log        zerolog.Logger
	now        func() time.Time
	functions  cache.SharedIndexInformer
	background sync.WaitGroup

	// last is the highest revision seen or given.
	last atomic.Uint64

	mu sync.Mutex
	// written has the resource version of this replica's latest write of each function,
	// by key. A cached object with a lower version is outdated. deleted has the UID of
	// the object that this replica has deleted.
	written map[string]uint64
	deleted map[string]types.UID
}

var _ provider.Store = (*Objects)(nil)

// Open reads the functions and namespaces and watches them until ctx ends. If the cluster
// has no resource for functions, or this program may not read them, the error says what
// to do. If opening ends before everything is read, Open returns its error.
func Open(ctx, opening context.Context, o Options) (*Objects, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	typed, err := v1alpha1.NewClient(o.Config)
	if err != nil {
		return nil, err
	}
	s := &Objects{client: o.Client, typed: typed, log: o.Logger, now: o.Now, functions: typed.Informer(),
		NamespaceStore: NewNamespaceStore(o.Client, o.NewNamespaces),
		written:        map[string]uint64{}, deleted: map[string]types.UID{}}
	if err := s.readable(opening); err != nil {
		return nil, err
	}
	for _, i := range []cache.SharedIndexInformer{s.functions, s.Informer} {
		// It can fail only if the informer runs already.
		_ = i.SetWatchErrorHandlerWithContext(s.watchFailed)
		_ = i.SetTransform(withoutOwners)
	}
	if _, err := s.functions.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: s.noteChanged, UpdateFunc: func(_, f any) { s.noteChanged(f) }, DeleteFunc: s.noteDeleted}); err != nil {
		return nil, fmt.Errorf("following functions: %w", err)
	}
	for _, i := range []cache.SharedIndexInformer{s.functions, s.Informer} {
		s.background.Go(func() { i.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(opening.Done(), s.functions.HasSynced, s.Informer.HasSynced) {
		return nil, fmt.Errorf("the functions could not be read from the API server: %w", context.Cause(opening))
	}
	return s, nil
}

// Close waits for the informers to end. End the context of Open first.
func (s *Objects) Close() { s.background.Wait() }

// readable lists functions and namespaces once, because the informers would retry for
// ever without an error.
func (s *Objects) readable(ctx context.Context) error {
	one := metav1.ListOptions{Limit: 1}
	_, err := s.typed.Functions(metav1.NamespaceAll).List(ctx, one)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no resource functions.%s; run kubectl apply -f yaml/crd.yaml: %w", v1alpha1.Group, err)
	}
	if err != nil {
		return fmt.Errorf("the functions cannot be listed: %w", err)
	}
	if _, err := s.client.CoreV1().Namespaces().List(ctx, one); err != nil {
		return fmt.Errorf("the namespaces cannot be listed: %w", err)
	}
	return nil
}

// watchFailed logs an error of a watch, which the informer retries.
func (s *Objects) watchFailed(_ context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		s.log.Warn().Err(err).Str("what", r.TypeDescription()).Msg("watching objects was interrupted; the provider tries again")
	}
}

// withoutOwners drops the owners of an object's fields, but for those of its scale. Nothing here
// reads the others, and they are large.
func withoutOwners(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(v1alpha1.Scalers(o.GetManagedFields()))
	}
	return object, nil
}

// noteChanged notes the revisions of a function that has appeared or changed.
func (s *Objects) noteChanged(object any) {
	if f, ok := object.(*v1alpha1.Function); ok {
		s.seen(s.revisionOf(f))
		if was := f.Status.Deployed; was != nil && s.plausible(was.Revision) {
			s.seen(was.Revision)
		}
	}
}

// noteDeleted notes that a function is gone from the cache.
func (s *Objects) noteDeleted(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	if lost, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = lost.Obj
	}
	f, ok := object.(*v1alpha1.Function)
	if !ok {
		return
	}
	s.noteChanged(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleted[key] == f.UID {
		delete(s.deleted, key)
	}
	if s.written[key] <= v1alpha1.ObjectVersion(f) {
		delete(s.written, key)
	}
}

// Lookup finds a function in the cache by its full name, "name.namespace". The caller
// must not change it.
func (s *Objects) Lookup(full string) (*v1alpha1.Function, bool) {
	namespace, name := splitName(full)
	return s.cached(namespace, name)
}

func (s *Objects) cached(namespace, name string) (*v1alpha1.Function, bool) {
	found, ok, err := s.functions.GetIndexer().GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil, false
	}
	f, ok := found.(*v1alpha1.Function)
	return f, ok
}

// all lists the functions in the cache.
func (s *Objects) all() []*v1alpha1.Function {
	var list []*v1alpha1.Function
	for _, object := range s.functions.GetIndexer().List() {
		if f, ok := object.(*v1alpha1.Function); ok {
			list = append(list, f)
		}
	}
	return list
}

// isStale reports whether f from the cache is older than this replica's own latest write or
// deletion of it.
func (s *Objects) isStale(f *v1alpha1.Function) bool {
	key := f.Namespace + "/" + f.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deleted[key] == f.UID || v1alpha1.ObjectVersion(f) < s.written[key]
}
