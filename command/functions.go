package command

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// functionsClient calls the routes of a provider's functions.
type functionsClient struct {
	remote
	namespace string
}

func newFunctionsClient() *functionsClient {
	return &functionsClient{remote: remote{prefix: "/system", kind: "a provider"}}
}

// registerNamespace adds --namespace.
func (a *functionsClient) registerNamespace(c *cobra.Command, otherwise string) {
	c.Flags().StringVarP(&a.namespace, "namespace", "n", "", "namespace of the functions (default "+otherwise+")")
	completeFlag(c, "namespace", a.completeNamespaces)
}

// all returns the functions of --namespace, or of all namespaces, sorted by namespace and name.
func (a *functionsClient) all(ctx context.Context) ([]types.FunctionStatus, error) {
	namespaces := []string{a.namespace}
	if a.namespace == "" {
		if _, err := a.fetch(ctx, http.MethodGet, "/namespaces", nil, &namespaces); err != nil {
			return nil, err
		}
	}
	all := []types.FunctionStatus{}
	for _, namespace := range namespaces {
		var some []types.FunctionStatus
		if _, err := a.fetch(ctx, http.MethodGet, "/functions?namespace="+url.QueryEscape(namespace), nil, &some); err != nil {
			return nil, err
		}
		for _, f := range some {
			f.Namespace = cmp.Or(f.Namespace, namespace)
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b types.FunctionStatus) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return all, nil
}

// checkNamespace refuses a --namespace that the provider does not have. If the provider does not tell, it returns nil.
func (a *functionsClient) checkNamespace(ctx context.Context) error {
	var all []string
	if a.namespace == "" {
		return nil
	}
	if _, err := a.fetch(ctx, http.MethodGet, "/namespaces", nil, &all); err != nil || slices.Contains(all, a.namespace) {
		return nil //nolint:nilerr // Other providers of OpenFaaS need not have the route.
	}
	return fmt.Errorf("there is no namespace %s; there are %s", a.namespace, strings.Join(all, ", "))
}

// address completes a function's name, which may be NAME.NAMESPACE, with --namespace.
func (a *functionsClient) address(name string) (function, namespace string) {
	function, namespace, _ = strings.Cut(name, ".")
	return function, cmp.Or(namespace, a.namespace, provider.DefaultNamespace)
}

// describe returns a function's status. The error about an unknown one names those that may have been meant.
func (a *functionsClient) describe(ctx context.Context, name string) (types.FunctionStatus, error) {
	var status types.FunctionStatus
	function, namespace := a.address(name)
	_, err := a.fetch(ctx, http.MethodGet, "/function/"+url.PathEscape(function)+"?namespace="+url.QueryEscape(namespace), nil, &status)
	if answered(err, http.StatusNotFound) {
		return status, a.unknown(ctx, name, err)
	}
	status.Namespace = cmp.Or(status.Namespace, namespace)
	return status, err
}

// unknownFunction is the error about a function that is not deployed.
type unknownFunction struct {
	name, suggestion string
	cause            error
}

// Error names the function and those that may have been meant.
func (e *unknownFunction) Error() string {
	return fmt.Sprintf("there is no function %s%s", e.name, cmp.Or(e.suggestion, "; faas-infer list shows those that there are"))
}

// Unwrap returns the provider's answer.
func (e *unknownFunction) Unwrap() error { return e.cause }

func (a *functionsClient) unknown(ctx context.Context, name string, cause error) error {
	function, namespace := a.address(name)
	out := &unknownFunction{name: provider.FullName(function, namespace), cause: cause}
	everywhere := *a
	everywhere.namespace = ""
	all, err := everywhere.all(ctx)
	if err != nil {
		return out // The function is unknown in any case.
	}
	var names, same []string
	for _, f := range all {
		if f.Namespace == namespace {
			names = append(names, f.Name)
		} else if f.Name == function {
			same = append(same, provider.FullName(f.Name, f.Namespace))
		}
	}
	out.suggestion = didYouMean(append(similar(function, names), same...))
	return out
}

// note returns what an annotation of a function's status says, "" without it.
func note(f types.FunctionStatus, key string) string {
	if f.Annotations == nil {
		return ""
	}
	return (*f.Annotations)[key]
}

// newListCommand returns "faas-infer list".
func newListCommand() *cobra.Command {
	a := newFunctionsClient()
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the functions of a provider",
		Long: `list shows the deployed functions of all namespaces, or of one: the image, the objective,
the instances that are ready or parked, and planned, and the requests answered since the provider started.
If a later revision of a function is rolled out gradually, a last column says how far it is.`,
		Example: "  faas-infer list\n  faas-infer list --namespace team-a -o yaml",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := a.all(c.Context())
			if err != nil {
				return err
			}
			if len(all) == 0 {
				if err := a.checkNamespace(c.Context()); err != nil {
					return err
				}
			}
			return a.out.Print(c.OutOrStdout(), all, func() *report.Table { return listTable(all, time.Now()) })
		},
	}
	a.register(c.Flags())
	a.registerNamespace(c, "all")
	return c
}

func listTable(all []types.FunctionStatus, now time.Time) *report.Table {
	t := &report.Table{Columns: []report.Column{{Title: "NAME"}, {Title: "NAMESPACE"}, {Title: "IMAGE"}, {Title: "OBJECTIVE", Right: true},
		{Title: "READY", Right: true}, {Title: "ANSWERED", Right: true}, {Title: "AGE", Right: true, Wide: true}, {Title: "CPU LIMIT", Wide: true}, {Title: "MEMORY LIMIT", Wide: true}}}
	rolling := slices.ContainsFunc(all, func(f types.FunctionStatus) bool { return note(f, annotation.InferRollout) != "" })
	if rolling {
		t.Columns = append(t.Columns, report.Column{Title: "ROLLOUT"})
	}
	for _, f := range all {
		limits := types.FunctionResources{}
		if f.Limits != nil {
			limits = *f.Limits
		}
		age := "-"
		if !f.CreatedAt.IsZero() {
			age = now.Sub(f.CreatedAt).Round(time.Second).String()
		}
		row := []any{f.Name, f.Namespace, f.Image, dashed(annotation.Objective(f)),
			fmt.Sprintf("%d/%d", f.AvailableReplicas, f.Replicas), fmt.Sprintf("%.0f", f.InvocationCount), age,
			cmp.Or(limits.CPU, "-"), cmp.Or(limits.Memory, "-")}
		if rolling {
			row = append(row, cmp.Or(note(f, annotation.InferRollout), "-"))
		}
		t.Add(row...)
	}
	return t
}

// dashed prints a duration, and "-" for 0, which stands for none.
func dashed(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.String()
}
