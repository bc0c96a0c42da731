package command

import (
	"context"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// completionPatience is how long completing a word may take: a shell waits for it.
const completionPatience = 500 * time.Millisecond

// completeFlag sets how the values of a command's flag are completed.
func completeFlag(c *cobra.Command, flag string, with cobra.CompletionFunc) {
	if err := c.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic(err) // The flag is defined.
	}
}

// completeFunctions completes names of functions of the running provider. Without one there is nothing to
// complete, and no message, which would end up in the line that the user types.
func (a *functionsClient) completeFunctions(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completionPatience)
	defer cancel()
	all, err := a.all(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, f := range all {
		if _, namespace := a.address(f.Name); f.Namespace == namespace {
			names = append(names, f.Name)
		} else {
			names = append(names, f.Name+"."+f.Namespace)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespaces completes names of namespaces of the running provider.
func (a *functionsClient) completeNamespaces(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(c.Context(), completionPatience)
	defer cancel()
	var names []cobra.Completion
	if _, err := a.fetch(ctx, http.MethodGet, "/namespaces", nil, &names); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeAnnotation completes the key of an annotation, up to the value.
func completeAnnotation(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var keys []cobra.Completion
	for _, key := range annotation.Keys() {
		keys = append(keys, key+"=")
	}
	return keys, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeProvider completes the values of a provider's flags that are names.
func completeProvider(c *cobra.Command) {
	for flag, names := range map[string][]string{
		"policy": batching.Names(), "cold-start": coldstart.Names(), "scheduler": systems.Schedulers(), "log-level": {"debug", "info", "warn", "error"},
	} {
		completeFlag(c, flag, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	}
}
