// Package objects keeps functions and namespaces of functions as Kubernetes objects,
// and follows what others make of them: another replica of the provider, or kubectl.
//
// The objects are the truth. A server deploys first and writes then, as on one
// machine; what it has written it hears again and ignores. Whatever else changes
// reaches it through Watch. The leader alone gives revisions to what kubectl has
// changed and writes functions' status. Reading is from an informer's cache and asks
// the API server nothing, but where this package says so; nothing here is on a
// request's way.
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

// Options are what Objects work with.
type Options struct {
	// Config reaches the API server, Client is made of it.
	Config *rest.Config
	Client kubernetes.Interface
	Logger zerolog.Logger
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

	// last is the highest revision that was seen or given.
	last atomic.Uint64

	mu sync.Mutex
	// written is the resource version of this replica's latest write of each
	// function, by key; what the cache has from before it is old news. deleted is
	// the object that it deleted.
	written map[string]uint64
	deleted map[string]types.UID
}

var _ provider.Store = (*Objects)(nil)

// Open reads the functions and namespaces and follows them until ctx ends. It
// returns an error that says what to do where the cluster does not know functions or
// this program may not read them; it returns with the error of opening if it ends
// before all has been read.
func Open(ctx, opening context.Context, o Options) (*Objects, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	typed, err := v1alpha1.NewClient(o.Config)
	if err != nil {
		return nil, err
	}
	s := &Objects{client: o.Client, typed: typed, log: o.Logger, now: o.Now, functions: typed.Informer(),
		NamespaceStore: NewNamespaceStore(o.Client),
		written:        map[string]uint64{}, deleted: map[string]types.UID{}}
	if err := s.readable(opening); err != nil {
		return nil, err
	}
	for _, i := range []cache.SharedIndexInformer{s.functions, s.Informer} {
		// It can fail only where the informer runs already.
		_ = i.SetWatchErrorHandlerWithContext(s.watchFailed)
		// Nothing here asks who owns which field.
		_ = i.SetTransform(withoutManagedFields)
	}
	if _, err := s.functions.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: s.see, UpdateFunc: func(_, f any) { s.see(f) }, DeleteFunc: s.unsee}); err != nil {
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

// Close waits for what Open has begun; its context must have ended.
func (s *Objects) Close() { s.background.Wait() }

// readable asks once for what the informers would ask for again and again.
func (s *Objects) readable(ctx context.Context) error {
	one := metav1.ListOptions{Limit: 1}
	_, err := s.typed.Functions(metav1.NamespaceAll).List(ctx, one)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no resource functions.%s: kubectl apply -f yaml/crd.yaml: %w", v1alpha1.Group, err)
	}
	if err != nil {
		return fmt.Errorf("the functions cannot be listed: %w", err)
	}
	if _, err := s.client.CoreV1().Namespaces().List(ctx, one); err != nil {
		return fmt.Errorf("the namespaces cannot be listed: %w", err)
	}
	return nil
}

// watchFailed says what the informers go on trying.
func (s *Objects) watchFailed(_ context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		s.log.Warn().Err(err).Str("what", r.TypeDescription()).Msg("following objects was interrupted; it is tried again")
	}
}

func withoutManagedFields(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// see notes a function that has come or changed.
func (s *Objects) see(object any) {
	if f, ok := object.(*v1alpha1.Function); ok {
		s.seen(s.revisionOf(f))
		if was := f.Status.Deployed; was != nil && s.believed(was.Revision) {
			s.seen(was.Revision)
		}
	}
}

// unsee notes that one is gone.
func (s *Objects) unsee(object any) {
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
	s.see(f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deleted[key] == f.UID {
		delete(s.deleted, key)
	}
	if s.written[key] <= v1alpha1.ObjectVersion(f) {
		delete(s.written, key)
	}
}

// Lookup finds a function in the cache by its full name, "name.namespace". What it
// returns is not to be changed.
func (s *Objects) Lookup(full string) (*v1alpha1.Function, bool) {
	namespace, name := apart(full)
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

// old reports whether f, which the cache has, is from before this replica's own
// latest write or deletion of it.
func (s *Objects) old(f *v1alpha1.Function) bool {
	key := f.Namespace + "/" + f.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deleted[key] == f.UID || v1alpha1.ObjectVersion(f) < s.written[key]
}
