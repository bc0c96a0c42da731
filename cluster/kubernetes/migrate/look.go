package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/client"
	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
)

// objects are the Functions of OpenFaaS' operator.
var objects = schema.GroupVersionResource{Group: "openfaas.com", Version: "v1", Resource: "functions"}

// others selects the Deployments of functions that faas-infer has not made.
const others = v1alpha1.FunctionLabel + "," + v1alpha1.ManagedByLabel + "!=" + v1alpha1.ManagedBy

// Needs are the rights of a user who imports functions, or undoes that.
func Needs() []client.Need {
	return []client.Need{
		{Scope: client.Functions, Group: v1alpha1.Group, Resource: v1alpha1.Plural, Verbs: []string{"create", "update", "delete"}, For: "writing functions"},
		{Scope: client.Functions, Group: "apps", Resource: "deployments", Verbs: []string{"patch"}, For: "scaling faas-netes' Deployments"},
	}
}

// Allowed returns an error that names the rights in Needs that the user does not have.
func (m *Mover) Allowed(ctx context.Context, namespaces []string) error {
	missing, err := client.CheckAccess(ctx, m.Client, Needs(), "", namespaces)
	if err != nil || len(missing) == 0 {
		return err
	}
	var all []string
	for _, r := range missing {
		all = append(all, fmt.Sprintf("%s %s.%s in namespace %s", r.Verb, r.Resource, r.Group, r.Namespace))
	}
	return fmt.Errorf("you may not %s; nothing has been changed: ask for a role with these rights", strings.Join(all, ", nor "))
}

// Look reads what a namespace has. Its errors name the namespace, the definition or the right that
// is missing.
func (m *Mover) Look(ctx context.Context, namespace string) (State, error) {
	state := State{Functions: map[types.NamespacedName]*v1alpha1.Function{}}
	if _, err := m.Client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return state, fmt.Errorf("there is no namespace %q; name that of your functions with --namespace", namespace)
	} else if err != nil && !apierrors.IsForbidden(err) { // Whoever may list the objects needs no more.
		return state, fmt.Errorf("namespace %q cannot be read: %w", namespace, err)
	}
	list, err := m.Dynamic.Resource(v1alpha1.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return state, fmt.Errorf("the cluster has no functions.%s: install faas-infer first", v1alpha1.Group)
	}
	if err != nil {
		return state, fmt.Errorf("the functions of namespace %s cannot be listed: %w", namespace, err)
	}
	for i := range list.Items {
		f, err := function(&list.Items[i])
		if err != nil {
			return state, err
		}
		state.Functions[types.NamespacedName{Namespace: f.Namespace, Name: f.Name}] = f
	}
	state.Origins, err = m.origins(ctx, namespace)
	return state, err
}

// origins returns a namespace's functions of faas-netes, sorted by name. The operator's object
// describes a function better than the Deployment that was made from it.
func (m *Mover) origins(ctx context.Context, namespace string) (all []Origin, err error) {
	byName := map[string]*Origin{}
	deployments, err := m.Client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: others})
	if err != nil {
		return nil, fmt.Errorf("the Deployments of namespace %s cannot be listed: %w", namespace, err)
	}
	for i := range deployments.Items {
		o := fromDeployment(&deployments.Items[i])
		byName[o.Name] = &o
	}
	list, err := m.Dynamic.Resource(objects).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("the Functions of %s in namespace %s cannot be listed: %w", objects.Group, namespace, err)
	}
	if err == nil {
		for i := range list.Items {
			o := fromObject(&list.Items[i])
			if runs := byName[o.Name]; runs != nil {
				o.Deployment = runs.Deployment
			}
			byName[o.Name] = &o
		}
	}
	for _, o := range byName {
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b Origin) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// function reads a Function object of faas-infer.
func function(u *unstructured.Unstructured) (*v1alpha1.Function, error) {
	f := &v1alpha1.Function{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, f); err != nil {
		return nil, fmt.Errorf("function %s in namespace %s cannot be read: %w", u.GetName(), u.GetNamespace(), err)
	}
	return f, nil
}
