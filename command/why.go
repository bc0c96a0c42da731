package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/decisions"
)

// whyPeriod is the time between two looks of "why --follow". Tests shorten it.
var whyPeriod = time.Second

// whyCommand shows a function's state and its latest decisions.
type whyCommand struct {
	*functionsClient
	follow bool
	limit  int
}

// whyAnswer is what "why -o json" prints.
type whyAnswer struct {
	Function types.FunctionStatus `json:"function"`
	provider.Events
}

// newWhyCommand returns "faas-infer why".
func newWhyCommand() *cobra.Command {
	y := &whyCommand{functionsClient: newFunctionsClient()}
	c := &cobra.Command{
		Use:   "why NAME",
		Short: "Say what a function is doing, what is wrong with it, and what was decided about it, with the reasons",
		Long: `why shows how many instances of a function are ready, its problem if it has one, and the
latest decisions about it, the newest last: which instances were started, resized, parked or
stopped, and why. The provider remembers the latest 200 decisions of a function, and forgets all
when it restarts.

The exit status is 1 if there is no such function. The user and password are those of the
provider's system routes. Without --password-file, why uses the credentials of "faas-infer login",
or those of "faas-infer up" for a provider on this machine.`,
		Example: `  faas-infer why mnist
  faas-infer why mnist.team-a --follow
  faas-infer why mnist -o json | jq -r '.events[].text'
  faas-infer why mnist --url http://10.0.0.5:8080 --password-file password.txt`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: y.completeFunctions,
		RunE: func(c *cobra.Command, args []string) error {
			if y.limit < 1 {
				return usage(fmt.Errorf("--limit %d: it must be at least 1", y.limit))
			}
			return y.run(c.Context(), c.OutOrStdout(), args[0])
		},
	}
	y.register(c.Flags())
	y.registerNamespace(c, "that in NAME, or openfaas-fn")
	c.Flags().BoolVarP(&y.follow, "follow", "f", false, "go on and print each new decision, also while the provider restarts; as JSON, one in a line")
	c.Flags().IntVar(&y.limit, "limit", 20, "how many decisions, at most 1000")
	return c
}

func (y *whyCommand) run(ctx context.Context, out io.Writer, name string) error {
	var answer whyAnswer
	var err error
	if answer.Function, err = y.describe(ctx, name); err != nil {
		return err
	}
	if err := y.events(ctx, name, 0, y.limit, &answer.Events); err != nil {
		return err
	}
	if err := y.print(out, answer); err != nil {
		return err
	}
	for y.follow {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(whyPeriod):
		}
		next := provider.Events{}
		var away *url.Error
		err := y.events(ctx, name, answer.Next, 1000, &next)
		switch {
		case errors.As(err, &away) || answered(err, http.StatusServiceUnavailable):
			continue // The provider restarts, or the user has stopped this.
		case err != nil:
			return err
		}
		answer.Next = next.Next
		for _, d := range next.Events {
			if err := y.printOne(out, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// events reads the decisions about a function after an ID.
func (y *whyCommand) events(ctx context.Context, name string, since uint64, limit int, into *provider.Events) error {
	query := url.Values{"since": {strconv.FormatUint(since, 10)}, "limit": {strconv.Itoa(limit)}}
	function, namespace := y.address(name)
	query.Set("function", function)
	query.Set("namespace", namespace)
	_, err := y.fetch(ctx, http.MethodGet, "/events?"+query.Encode(), nil, into)
	return err
}

// print writes a function's state and its decisions.
func (y *whyCommand) print(out io.Writer, a whyAnswer) error {
	if y.out.Raw() {
		return y.out.Print(out, a, nil)
	}
	f := a.Function
	var text strings.Builder
	width := report.Width(out)
	line := func(prefix, said string) { text.WriteString(report.Wrapped(prefix, decisions.Printable(said), width)) }
	line("", fmt.Sprintf("%s.%s: %d of %d instances ready, image %s", f.Name, f.Namespace, f.AvailableReplicas, f.Replicas, f.Image))
	for _, about := range []struct{ key, name string }{
		{annotation.InferProblem, "Problem"}, {annotation.InferProgress, "Progress"}, {annotation.InferRollout, "Rollout"},
		{annotation.InferTexts, "Texts"}, {annotation.InferPlan, "Plan"}, {annotation.InferReach, "Sizes"}, {annotation.InferSharing, "Sharing"},
		{annotation.InferPromise, "Promise"},
	} {
		if said := note(f, about.key); said != "" {
			line(about.name+": ", said)
		}
	}
	if len(a.Events.Events) == 0 {
		line("", "Nothing was decided about it since the provider started.")
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return err
	}
	for _, d := range a.Events.Events {
		if err := y.printOne(out, d); err != nil {
			return err
		}
	}
	return nil
}

// printOne writes one decision.
func (y *whyCommand) printOne(out io.Writer, d decisions.Decision) error {
	if y.out.Raw() {
		return json.NewEncoder(out).Encode(d)
	}
	_, err := io.WriteString(out, report.Wrapped(d.At.Local().Format(time.DateTime)+"  ", decisions.Printable(d.Text), report.Width(out)))
	return err
}
