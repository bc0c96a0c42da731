// Package client holds what all clients of the API server share. [CheckAccess] finds
// missing rights of the service account at start, [RetryTransport] makes informers wait
// for an API server that is away, [Election] elects the leader, and [RouteLogs] puts
// client-go's messages into the provider's log. It knows nothing of functions or
// instances. Begin reading at [Needs] and [CheckAccess].
package client

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// Scope says in which namespaces a right is needed.
type Scope int

const (
	// Cluster: in the whole cluster, by a ClusterRoleBinding.
	Cluster Scope = iota
	// Provider: in the provider's own namespace.
	Provider
	// Functions: in every namespace of functions.
	Functions
)

// Need names the verbs that the provider needs on one resource.
type Need struct {
	Scope Scope
	// Group is "" for the core API; Resource may carry a subresource after a slash.
	Group, Resource string
	Verbs           []string
	// For says what the provider does with the right.
	For string
}

// Needs returns every right that the provider needs without options, and no others.
func Needs() []Need {
	watch := []string{"get", "list", "watch"}
	return []Need{
		{Cluster, v1alpha1.Group, v1alpha1.Plural, watch, "knowing the functions"},
		{Cluster, "", "namespaces", watch, "knowing the namespaces of functions"},
		{Cluster, "", "nodes", watch, "placing instances"},
		{Cluster, "", "pods", watch, "placing and following instances"},
		{Cluster, "apps", "deployments", watch, "following ordinary functions"},
		{Functions, v1alpha1.Group, v1alpha1.Plural, []string{"create", "patch", "delete"}, "deploying and deleting functions"},
		{Functions, v1alpha1.Group, v1alpha1.Plural + "/status", []string{"patch"}, "functions' status"},
		{Functions, "", "secrets", []string{"get", "list", "create", "update", "delete"}, "functions' secrets"},
		{Functions, "", "serviceaccounts", []string{"get"}, "their credentials for image registries"},
		{Functions, "", "pods", []string{"create", "delete"}, "instances"},
		{Functions, "", "pods/resize", []string{"patch"}, "resizing and parking instances"},
		{Functions, "", "pods/log", []string{"get"}, "faas-cli logs"},
		{Functions, "", "events", []string{"create", "patch"}, "saying why a function is not served"},
		{Functions, "apps", "deployments", []string{"create", "patch", "delete"}, "ordinary functions"},
		{Functions, "", "services", []string{"create", "patch", "delete"}, "ordinary functions"},
		{Provider, "", "configmaps", append([]string{"create", "patch", "delete"}, watch...), "what is learned of functions"},
		{Provider, "coordination.k8s.io", "leases", []string{"get", "create", "update"}, "electing a leader"},
		{Provider, "discovery.k8s.io", "endpointslices", watch, "finding the other replicas"},
	}
}

// NamespaceNeeds returns the rights for faas-cli namespace. Only installations with the option
// manage-namespaces give them.
func NamespaceNeeds() []Need {
	return []Need{
		{Cluster, "", "namespaces", []string{"create", "patch", "delete"}, "faas-cli namespace"},
		{Cluster, "networking.k8s.io", "networkpolicies", []string{"create", "patch"}, "the network policies of namespaces that faas-cli makes"},
	}
}

// ClaimNeeds returns the rights with which the provider claims GPUs of which instances have shares.
// Only installations with the node agent give them.
func ClaimNeeds() []Need {
	return []Need{
		{Cluster, "resource.k8s.io", "resourceslices", []string{"list", "watch"}, "knowing the GPUs of the DRA driver"},
		{Cluster, "resource.k8s.io", "resourceclaims", []string{"list", "watch"}, "knowing who has a GPU"},
		{Functions, "resource.k8s.io", "resourceclaims", []string{"get", "create"}, "claiming the GPUs of instances"},
	}
}

// Missing is a right that the provider does not have.
type Missing struct {
	Need
	Verb string
	// Namespace is "" if the right is needed in the whole cluster.
	Namespace string
}

// String returns a sentence that says which verb to add to which role.
func (m Missing) String() string {
	where, role := "in namespace "+m.Namespace, "a Role there"
	if m.Namespace == "" {
		where, role = "in the whole cluster", "its ClusterRole"
	}
	return fmt.Sprintf("the provider may not %s %s %s, which it needs for %s: add verb %q on resource %q of API group %q to %s",
		m.Verb, m.Resource, where, m.For, m.Verb, m.Resource, m.Group, role)
}

// inParallel is the maximum number of reviews in flight.
const inParallel = 8

// CheckAccess asks the API server for every right in needs and returns the missing ones
// in the order of needs. own is the provider's namespace; functions are the namespaces of
// functions. It returns an error if the API server fails to answer.
func CheckAccess(ctx context.Context, client kubernetes.Interface, needs []Need, own string, functions []string) ([]Missing, error) {
	asked := questions(needs, own, functions)
	denied := make([]bool, len(asked))
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	tokens := make(chan struct{}, inParallel)
	for i, m := range asked {
		tokens <- struct{}{}
		wait.Go(func() {
			defer func() { <-tokens }()
			allowed, err := ask(ctx, client, m)
			mu.Lock()
			defer mu.Unlock()
			denied[i] = !allowed
			if err != nil && failed == nil {
				failed = fmt.Errorf("cannot check whether the provider may %s %s: %w", m.Verb, m.Resource, err)
			}
		})
	}
	wait.Wait()
	if failed != nil {
		return nil, failed
	}
	var missing []Missing
	for i, m := range asked {
		if denied[i] {
			missing = append(missing, m)
		}
	}
	return missing, nil
}

// questions returns all rights to ask for, as if each were missing: one for each verb
// and namespace, or one for each verb if the right is needed in the whole cluster.
func questions(needs []Need, own string, functions []string) []Missing {
	var all []Missing
	for _, n := range needs {
		namespaces := map[Scope][]string{Cluster: {""}, Provider: {own}, Functions: functions}[n.Scope]
		for _, namespace := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
			for _, verb := range n.Verbs {
				all = append(all, Missing{n, verb, namespace})
			}
		}
	}
	return all
}

func ask(ctx context.Context, client kubernetes.Interface, m Missing) (bool, error) {
	resource, sub, _ := strings.Cut(m.Resource, "/")
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: m.Namespace, Verb: m.Verb, Group: m.Group, Resource: resource, Subresource: sub,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
