package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
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

// NamespaceAnnotation is the annotation that allows functions in a namespace if it is
// "1", as in the rest of OpenFaaS.
const NamespaceAnnotation = "openfaas"

// pendingNamespace is the value of [NamespaceAnnotation] of a namespace that lacks what a new one
// gets. Functions are not allowed there yet. Only PutNamespace sets it.
const pendingNamespace = "pending"

// systemKeys are the labels and annotations of Kubernetes and of the provider, which are
// not shown as the user's.
var systemKeys = []string{NamespaceAnnotation, corev1.LabelMetadataName, v1alpha1.ManagedByLabel, "kubectl.kubernetes.io/last-applied-configuration"}

// catchUp is how long a change of a namespace waits until this replica's cache has it.
const catchUp = 5 * time.Second

// namespacePatience is how long the API server may take for one change.
const namespacePatience = 10 * time.Second

// NamespaceStore keeps the namespaces of functions as Kubernetes namespaces. It is safe
// for concurrent use.
type NamespaceStore struct {
	client kubernetes.Interface
	// fresh says what a namespace gets that the store creates.
	fresh NewNamespaces
	// Informer has all namespaces of the cluster. The creator of the store runs it.
	Informer cache.SharedIndexInformer
}

// NewNamespaceStore returns the namespace store of a cluster. fresh says what namespaces get that
// it creates.
func NewNamespaceStore(client kubernetes.Interface, fresh NewNamespaces) *NamespaceStore {
	return &NamespaceStore{client: client, fresh: fresh, Informer: informers.NewSharedInformerFactory(client, 0).Core().V1().Namespaces().Informer()}
}

// cachedNamespace finds a namespace in the cache.
func (s *NamespaceStore) cachedNamespace(name string) (*corev1.Namespace, bool) {
	found, ok, err := s.Informer.GetIndexer().GetByKey(name)
	if err != nil || !ok {
		return nil, false
	}
	n, ok := found.(*corev1.Namespace)
	return n, ok
}

// Allowed reports whether functions are allowed in a namespace. It reads the cache.
func (s *NamespaceStore) Allowed(name string) bool {
	n, ok := s.cachedNamespace(name)
	return ok && IsFunctionNamespace(n)
}

// AllowedNow is Allowed that asks the API server if the cache says no. The cache may not
// have a namespace yet that another replica has just created.
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

// IsFunctionNamespace reports whether functions are allowed in a namespace.
func IsFunctionNamespace(n *corev1.Namespace) bool {
	return n.DeletionTimestamp == nil && (n.Name == provider.DefaultNamespace || n.Annotations[NamespaceAnnotation] == "1")
}

// Names returns the names of the namespaces of functions, sorted.
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

// Namespaces lists the namespaces of functions, sorted by name.
func (s *NamespaceStore) Namespaces() ([]store.Namespace, error) {
	out := []store.Namespace{}
	for _, name := range s.Names() {
		if n, ok := s.cachedNamespace(name); ok {
			out = append(out, shown(n))
		}
	}
	return out, nil
}

// Namespace returns a namespace of functions; store.ErrAbsent if there is none. If the
// cache has none, it asks the API server, since another replica may have just created it.
func (s *NamespaceStore) Namespace(name string) (store.Namespace, error) {
	n, ok := s.cachedNamespace(name)
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

// shown returns a namespace with the user's labels and annotations. The levels of Pod Security that
// the provider gave it are not the user's: a client that writes back what it read would be refused.
func shown(n *corev1.Namespace) store.Namespace {
	labels := userKeys(n.Labels)
	if n.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy {
		maps.DeleteFunc(labels, func(key, _ string) bool { return slices.Contains(levels, key) })
		if len(labels) == 0 {
			labels = nil
		}
	}
	return store.Namespace{Name: n.Name, Labels: labels, Annotations: userKeys(n.Annotations), CreatedAt: n.CreationTimestamp.UTC()}
}

// reserved reports whether a key of a label or an annotation has a prefix of Kubernetes. Pod
// Security, the scheduler and admission plugins read such keys.
func reserved(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	if !found {
		return false
	}
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return true
		}
	}
	return false
}

// userKeys returns the labels or annotations without systemKeys.
func userKeys(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(key, _ string) bool { return slices.Contains(systemKeys, key) })
	if len(out) == 0 {
		return nil
	}
	return out
}

// PutNamespace creates a namespace of functions, which admits functions once it has all that
// [NewNamespaces] says; after an error a second call continues. In an existing one, it replaces the
// labels and annotations that came from PutNamespace, and keeps those of other clients.
// 409 if the namespace is not for functions, or is being deleted; 403 for a label or
// annotation of Kubernetes, such as a Pod Security level: it is the administrators'.
func (s *NamespaceStore) PutNamespace(n store.Namespace) error {
	for _, keys := range []map[string]string{userKeys(n.Labels), userKeys(n.Annotations)} {
		for key := range keys {
			if reserved(key) {
				return web.Refuse(http.StatusForbidden, "%.80q is a key of Kubernetes, which only an administrator of the cluster may set: kubectl label or annotate namespace %s", key, n.Name)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), namespacePatience)
	defer cancel()
	found, err := s.client.CoreV1().Namespaces().Get(ctx, n.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return problemFrom(err, "namespace %s could not be read", n.Name)
	case found.DeletionTimestamp != nil:
		return web.Refuse(http.StatusConflict, "namespace %q is still being deleted; try again in a moment", n.Name)
	case !IsFunctionNamespace(found) && !pending(found):
		return web.Refuse(http.StatusConflict, "namespace %q exists in the cluster and is not for functions; allow functions in it with: kubectl annotate namespace %s %s=1", n.Name, n.Name, NamespaceAnnotation)
	}
	if err != nil {
		if found, err = s.create(ctx, n.Name); err != nil {
			return err
		}
	}
	if pending(found) {
		if err := s.furnish(ctx, n.Name); err != nil {
			return err
		}
	}
	object := applycorev1.Namespace(n.Name).WithLabels(userKeys(n.Labels)).
		WithAnnotations(userKeys(n.Annotations)).WithAnnotations(map[string]string{NamespaceAnnotation: "1"})
	if found.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy {
		object.WithLabels(map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedBy}).WithLabels(securityLabels(found))
	}
	written, err := s.client.CoreV1().Namespaces().Apply(ctx, object, metav1.ApplyOptions{FieldManager: v1alpha1.ManagedBy, Force: true})
	if err != nil {
		return namespaceProblem(err, "kubectl label or annotate namespace "+n.Name, "namespace "+n.Name+" was not stored")
	}
	s.await(func() bool {
		known, ok := s.cachedNamespace(n.Name)
		return ok && known.UID == written.UID && v1alpha1.ObjectVersion(known) >= v1alpha1.ObjectVersion(written)
	})
	return nil
}

// DeleteNamespace deletes a namespace that PutNamespace has created, with everything in
// it. It keeps a namespace of another client, but functions are not allowed in it any
// more. store.ErrAbsent if there is none.
func (s *NamespaceStore) DeleteNamespace(name string) error {
	if err := s.deleteNamespace(name, nil); err != nil {
		return err
	}
	s.await(func() bool { return !s.Allowed(name) })
	return nil
}

// CheckDeleteNamespace returns the error with which DeleteNamespace would refuse. The API server
// checks the provider's rights and the admission policies, and changes nothing.
func (s *NamespaceStore) CheckDeleteNamespace(name string) error {
	return s.deleteNamespace(name, []string{metav1.DryRunAll})
}

// deleteNamespace is DeleteNamespace that does not wait for the cache; dryRun is the option of
// the API.
func (s *NamespaceStore) deleteNamespace(name string, dryRun []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), namespacePatience)
	defer cancel()
	spaces := s.client.CoreV1().Namespaces()
	found, err := spaces.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !IsFunctionNamespace(found) {
		return fmt.Errorf("namespace %s: %w", name, store.ErrAbsent)
	}
	instead := "kubectl annotate namespace " + name + " " + NamespaceAnnotation + "-"
	if err == nil && found.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedBy {
		instead = "kubectl delete namespace " + name
		err = spaces.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(found.UID)), DryRun: dryRun})
	} else if err == nil {
		_, err = spaces.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+NamespaceAnnotation+`":null}}}`), metav1.PatchOptions{FieldManager: v1alpha1.ManagedBy, DryRun: dryRun})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return namespaceProblem(err, instead, "namespace "+name+" was not deleted")
	}
	return nil
}

// await waits until the cache has a change, so the next request to this replica sees it.
// After catchUp it stops waiting, because the change will come anyway.
func (s *NamespaceStore) await(there func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), catchUp)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, 2*time.Millisecond, true, func(context.Context) (bool, error) { return there(), nil })
}
