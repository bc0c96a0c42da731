package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// conditions are what "faas-infer wait" can wait for.
const (
	forReady   = "ready"
	forServing = "serving"
	forIdle    = "idle"
	forDeleted = "deleted"
)

var conditions = []string{forReady, forServing, forIdle, forDeleted}

// pollInterval is the time between two looks at a function that is waited for.
const pollInterval = 250 * time.Millisecond

// newWaitCommand returns "faas-infer wait".
func newWaitCommand() *cobra.Command {
	a := newFunctionsClient()
	var condition string
	c := &cobra.Command{
		Use:   "wait NAME...",
		Short: "Wait until functions are ready, serve, are idle, or are deleted",
		Long: `wait returns once all named functions meet a condition. It prints on standard error why
it waits, and fails when --timeout has passed.

  ready    the latest deployment is served: its model is known, nothing is wrong, and all the
           instances that it keeps are ready. A function that keeps none is ready without
  serving  ready, and at least one instance is
  idle     no instance is left
  deleted  the function is not deployed`,
		Example: `  faas-infer wait mnist
  faas-infer wait mnist resnet-50 --for serving --timeout 2m
  faas-infer wait mnist --for deleted`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeFunctions,
		RunE: func(c *cobra.Command, names []string) error {
			if !slices.Contains(conditions, condition) {
				return usage(fmt.Errorf("--for %q: it must be one of %s%s", condition, strings.Join(conditions, ", "), didYouMean(similar(condition, conditions))))
			}
			return a.await(c.Context(), names, condition, a.timeout, c.ErrOrStderr())
		},
	}
	a.registerClient(c.Flags())
	a.registerNamespace(c, "openfaas-fn")
	c.Flags().StringVar(&condition, "for", forReady, "what to wait for: "+strings.Join(conditions, ", "))
	c.Flags().DurationVar(&a.timeout, "timeout", 5*time.Minute, "how long to wait for all")
	completeFlag(c, "for", cobra.FixedCompletions(conditions, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// await waits until functions meet a condition. It says in say why it waits, once for each reason.
func (a *functionsClient) await(ctx context.Context, names []string, condition string, timeout time.Duration, say io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for _, name := range names {
		reason := ""
		for {
			why, remark, err := a.lacks(ctx, name, condition)
			if ctx.Err() == context.DeadlineExceeded {
				return fmt.Errorf("%s is not %s after %s: %s", name, condition, timeout, cmp.Or(why, reason, "the provider does not answer"))
			}
			if err != nil {
				return err
			}
			if why == "" && remark != "" {
				fmt.Fprintf(say, "%s: it serves, but %s\n", name, remark)
			}
			if why == "" {
				break
			}
			if why != reason {
				fmt.Fprintf(say, "%s: %s\n", name, why)
				reason = why
			}
			backoff.Wait(ctx, pollInterval)
		}
	}
	return nil
}

// lacks says why a function does not meet a condition yet, "" if it does. The remark is a problem with which it serves.
func (a *functionsClient) lacks(ctx context.Context, name, condition string) (why, remark string, err error) {
	f, err := a.describe(ctx, name)
	if unknown := (*unknownFunction)(nil); errors.As(err, &unknown) && condition == forDeleted {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	if condition == forDeleted || condition == forIdle {
		return missingFor(f, condition), "", nil
	}
	one := *a
	_, one.namespace = a.address(name)
	rows, _, err := one.status(ctx, []string{name})
	if err != nil {
		return "", "", err
	}
	problem := note(f, annotation.InferProblem)
	switch why = missingFor(f, condition); {
	case problem != "" && (strings.HasPrefix(problem, provider.Before("")) || f.AvailableReplicas == 0 && rows[0].State != "idle"):
		return problem, "", nil
	case why == "" && rows[0].swapping():
		return "revision " + rows[0].revisions(), "", nil
	}
	return why, problem, nil
}

// missingFor says what a status lacks for a condition, "" if nothing.
func missingFor(f types.FunctionStatus, condition string) string {
	instances := fmt.Sprintf("%d of %d instances are ready", f.AvailableReplicas, f.Replicas)
	switch condition {
	case forDeleted:
		return "it is deployed"
	case forIdle:
		if f.Replicas > 0 || f.AvailableReplicas > 0 {
			return instances
		}
		return ""
	}
	if why := note(f, annotation.InferProgress); why != "" {
		return why
	}
	if f.AvailableReplicas < f.Replicas || condition == forServing && f.AvailableReplicas == 0 {
		return instances
	}
	return ""
}
