package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Annotation, "1", makes a namespace one of functions, as the rest of OpenFaaS
// has it.
const NamespaceAnnotation = "openfaas"

// clusters are labels and annotations that are Kubernetes' or ours, and not shown as
// the user's.
var clusters = []string{NamespaceAnnotation, corev1.LabelMetadataName, v1alpha1.ManagedByLabel, "kubectl.kubernetes.io/last-applied-configuration"}

// catchUp is how long a change of a namespace waits for this replica's own cache to
// have it.
const catchUp = 5 * time.Second

// namespacePatience is how long the API server may take for one change.
const namespacePatience = 10 * time.Second

// NamespaceStore is the namespaces of functions. It is safe for concurrent use.
type NamespaceStore struct {
	client kubernetes.Interface
	// Informer has all namespaces of the cluster; whoever made the store runs it.
	Informer cache.SharedIndexInformer
}

// NewNamespaceStore returns the namespaces of a cluster.
func NewNamespaceStore(client kubernetes.Interface) *NamespaceStore {
	return &NamespaceStore{client: client, Informer: informers.NewSharedInformerFactory(client, 0).Core().V1().Namespaces().Informer()}
}

// space finds a namespace in the cache.
func (s *NamespaceStore) space(name string) (*corev1.Namespace, bool) {
	found, ok, err := s.Informer.GetIndexer().GetByKey(name)
	if err != nil || !ok {
		return nil, false
	}
	n, ok := found.(*corev1.Namespace)
	return n, ok
}

// Allowed reports whether functions may be in a namespace.
func (s *NamespaceStore) Allowed(name string) bool {
	n, ok := s.space(name)
	return ok && IsFunctionNamespace(n)
}

// AllowedNow is Allowed that asks the API server where the cache says no: the cache may
// not know yet of a namespace that another replica has made.
func (s *NamespaceStore) AllowedNow(name string) (bool, error) {
	if s.Allowed(name) {
		return true, nil
	}
	_, err := s.Namespace(name)
	if errors.Is(err, store.ErrAbsent) {
		return false, nil
	}
	return err == nil, err
}

// IsFunctionNamespace reports whether a namespace is one of functions.
func IsFunctionNamespace(n *corev1.Namespace) bool {
	return n.DeletionTimestamp == nil && (n.Name == provider.DefaultNamespace || n.Annotations[NamespaceAnnotation] == "1")
}

// Names are the names of the namespaces of functions, sorted.
func (s *NamespaceStore) Names() []string {
	var names []string
	for _, object := range s.Informer.GetIndexer().List() {
		if n, ok := object.(*corev1.Namespace); ok && IsFunctionNamespace(n) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Namespaces lists those of functions by name.
func (s *NamespaceStore) Namespaces() ([]store.Namespace, error) {
	out := []store.Namespace{}
	for _, name := range s.Names() {
		if n, ok := s.space(name); ok {
			out = append(out, shown(n))
		}
	}
	return out, nil
}

// Namespace returns one of functions; store.ErrAbsent if there is none. Where the
// cache has none, it asks the API server, since another replica may just have made
// it.
func (s *NamespaceStore) Namespace(name string) (store.Namespace, error) {
	n, ok := s.space(name)
	if !ok || !IsFunctionNamespace(n) {
		ctx, cancel := context.WithTimeout(context.Background(), namespacePatience)
		defer cancel()
		var err error
		n, err = s.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return store.Namespace{}, problemFrom(err, "namespace %s could not be read", name)
		}
		if err != nil || !IsFunctionNamespace(n) {
			return store.Namespace{}, fmt.Errorf("namespace %s: %w", name, store.ErrAbsent)
		}
	}
	return shown(n), nil
}

// shown is a namespace as the user made it.
func shown(n *corev1.Namespace) store.Namespace {
	return store.Namespace{Name: n.Name, Labels: users(n.Labels), Annotations: users(n.Annotations), CreatedAt: n.CreationTimestamp.UTC()}
}

func users(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { return slices.Contains(clusters, key) })
	if len(out) == 0 {
		return nil
	}
	return out
}

// PutNamespace makes a namespace of functions, or gives one other labels and
// annotations in place of those that were given here before; what others have given
// it stays. 409 if there is one of the name that is not of functions, or is being
// deleted.
func (s *NamespaceStore) PutNamespace(n store.Namespace) error {
	ctx, cancel := context.WithTimeout(context.Background(), namespacePatience)
	defer cancel()
	found, err := s.client.CoreV1().Namespaces().Get(ctx, n.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return problemFrom(err, "namespace %s could not be read", n.Name)
	case found.DeletionTimestamp != nil:
		return web.Refuse(http.StatusConflict, "namespace %q is still being deleted; try again in a moment", n.Name)
	case !IsFunctionNamespace(found):
		return web.Refuse(http.StatusConflict, "namespace %q is in the cluster already and is not one of functions; make it one with: kubectl annotate namespace %s %s=1", n.Name, n.Name, NamespaceAnnotation)
	}
	object := applycorev1.Namespace(n.Name).WithLabels(users(n.Labels)).
		WithAnnotations(users(n.Annotations)).WithAnnotations(map[string]string{NamespaceAnnotation: "1"})
	if found == nil || err != nil || found.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy {
		object.WithLabels(map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy})
	}
	written, err := s.client.CoreV1().Namespaces().Apply(ctx, object, metav1.ApplyOptions{FieldManager: v1alpha1.ManagedBy, Force: true})
	if err != nil {
		return problemFrom(err, "namespace %s was not kept", n.Name)
	}
	s.await(func() bool {
		known, ok := s.space(n.Name)
		return ok && known.UID == written.UID && v1alpha1.ObjectVersion(known) >= v1alpha1.ObjectVersion(written)
	})
	return nil
}

// DeleteNamespace deletes a namespace that was made here, with all that is in it. One
// that somebody else has made stays, and is not one of functions any more.
// store.ErrAbsent if there is none.
func (s *NamespaceStore) DeleteNamespace(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), namespacePatience)
	defer cancel()
	spaces := s.client.CoreV1().Namespaces()
	found, err := spaces.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !IsFunctionNamespace(found) {
		return fmt.Errorf("namespace %s: %w", name, store.ErrAbsent)
	}
	if err == nil && found.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy {
		err = spaces.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID))})
	} else if err == nil {
		_, err = spaces.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+NamespaceAnnotation+`":null}}}`), metav1.PatchOptions{FieldManager: v1alpha1.ManagedBy})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return problemFrom(err, "namespace %s was not deleted", name)
	}
	s.await(func() bool { return !s.Allowed(name) })
	return nil
}

// await waits until the cache has what was written, so that whoever asks this replica
// next sees it. A cache that takes long is not waited for: it comes.
func (s *NamespaceStore) await(there func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), catchUp)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, 2*time.Millisecond, true, func(context.Context) (bool, error) { return there(), nil })
}
