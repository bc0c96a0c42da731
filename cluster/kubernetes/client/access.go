// Package client holds what all clients of the API server share. [CheckAccess] finds
// missing rights of the service account at start, [RetryTransport] makes informers wait
// for an API server that is away, [Election] elects the leader, and [RouteLogs] puts
// client-go's messages into the provider's log. It knows nothing of functions or
// instances. Begin reading at [Needs] and [CheckAccess].
package client

import (
	"cmp"
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
		{Functions, "", "pods", []string{"create", "patch", "delete"}, "instances, and counting them for PodDisruptionBudgets"},
		{Functions, "", "pods/resize", []string{"patch"}, "resizing and parking instances"},
		{Functions, "", "pods/log", []string{"get"}, "faas-cli logs"},
		{Functions, "", "events", []string{"create", "patch"}, "saying what was decided about a function, and why it is not served"},
		{Functions, "apps", "deployments", []string{"create", "patch", "delete"}, "ordinary functions"},
		{Functions, "apps", "controllerrevisions", []string{"list", "create", "delete"}, "the history of functions' revisions"},
		{Functions, "", "services", []string{"get", "create", "patch", "delete"}, "ordinary functions"},
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
		{Cluster, "networking.k8s.io", "networkpolicies", []string{"create"}, "the network policies of namespaces that faas-cli makes"},
	}
}

// ClaimNeeds returns the rights with which the provider claims the GPUs of instances from a DRA driver. It works
// without them.
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

// CheckAccess asks the API server for every right in needs and returns the missing ones
// in the order of needs. own is the provider's namespace; functions are the namespaces of
// functions. It returns an error if the API server fails to answer.
//
// A right in all namespaces is one question. Without it, each namespace is asked once for all its
// rules: a thousand namespaces take a thousand questions and not one for each of their rights.
func CheckAccess(ctx context.Context, client kubernetes.Interface, needs []Need, own string, functions []string) ([]Missing, error) {
	functions = slices.Compact(slices.Sorted(slices.Values(functions)))
	asked := questions(needs, own, functions)
	denied, err := inParallel(asked, func(m Missing) (bool, error) {
		allowed, err := ask(ctx, client, m)
		if err != nil {
			err = fmt.Errorf("cannot check whether the provider may %s %s: %w", m.Verb, m.Resource, err)
		}
		return !allowed, err
	})
	if err != nil {
		return nil, err
	}
	var lacking, missing []Missing
	for i, m := range asked {
		if denied[i] {
			lacking = append(lacking, m)
		}
	}
	inEach := slices.DeleteFunc(slices.Clone(lacking), func(m Missing) bool { return m.Scope != Functions })
	within := make([][]Missing, len(functions))
	if len(inEach) > 0 {
		if within, err = inParallel(functions, func(namespace string) ([]Missing, error) { return lack(ctx, client, inEach, namespace) }); err != nil {
			return nil, err
		}
	}
	for _, m := range lacking {
		if m.Scope != Functions {
			missing = append(missing, m)
			continue
		}
		for _, all := range within {
			for _, x := range all {
				if x.Verb == m.Verb && x.Group == m.Group && x.Resource == m.Resource {
					missing = append(missing, x)
				}
			}
		}
	}
	return missing, nil
}

// maxInParallel is the maximum number of reviews in flight.
const maxInParallel = 8

// inParallel returns what f says of each of the questions, and one of its errors.
func inParallel[Q, A any](asked []Q, f func(Q) (A, error)) ([]A, error) {
	answers := make([]A, len(asked))
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	tokens := make(chan struct{}, maxInParallel)
	for i, q := range asked {
		tokens <- struct{}{}
		wait.Go(func() {
			defer func() { <-tokens }()
			answer, err := f(q)
			mu.Lock()
			defer mu.Unlock()
			answers[i], failed = answer, cmp.Or(failed, err)
		})
	}
	wait.Wait()
	return answers, failed
}

// lack returns the rights that the provider has not in a namespace.
func lack(ctx context.Context, client kubernetes.Interface, rights []Missing, namespace string) (missing []Missing, err error) {
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, &authorizationv1.SelfSubjectRulesReview{
		Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot check the provider's rights in namespace %s: %w", namespace, err)
	}
	for _, m := range rights {
		m.Namespace = namespace
		allowed := grants(review.Status.ResourceRules, m)
		if !allowed && review.Status.Incomplete { // An authorizer does not list its rules.
			if allowed, err = ask(ctx, client, m); err != nil {
				return nil, err
			}
		}
		if !allowed {
			missing = append(missing, m)
		}
	}
	return missing, nil
}

// grants reports whether one of the rules gives a right on all objects.
func grants(rules []authorizationv1.ResourceRule, m Missing) bool {
	has := func(all []string, names ...string) bool {
		return slices.ContainsFunc(all, func(x string) bool { return x == "*" || slices.Contains(names, x) })
	}
	_, sub, nested := strings.Cut(m.Resource, "/")
	names := []string{m.Resource}
	if nested {
		names = append(names, "*/"+sub)
	}
	return slices.ContainsFunc(rules, func(r authorizationv1.ResourceRule) bool {
		return len(r.ResourceNames) == 0 && has(r.Verbs, m.Verb) && has(r.APIGroups, m.Group) && has(r.Resources, names...)
	})
}

// questions returns all rights to ask for, as if each were missing: one for each verb. Those in
// the namespaces of functions are asked for in the whole cluster first.
func questions(needs []Need, own string, functions []string) []Missing {
	var all []Missing
	for _, n := range needs {
		namespace := ""
		switch {
		case n.Scope == Provider:
			namespace = own
		case n.Scope == Functions && len(functions) == 0:
			continue
		}
		for _, verb := range n.Verbs {
			all = append(all, Missing{n, verb, namespace})
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
