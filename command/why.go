package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/decisions"
)

// whyPeriod is the time between two looks of "why --follow". Tests shorten it.
var whyPeriod = time.Second

// whyCommand shows a function's state and its latest decisions.
type whyCommand struct {
	remote
	follow bool
	limit  int
	output string
}

// whyAnswer is what "why -o json" prints.
type whyAnswer struct {
	Function types.FunctionStatus `json:"function"`
	provider.Events
}

// newWhyCommand returns "faas-infer why".
func newWhyCommand() *cobra.Command {
	y := &whyCommand{remote: remote{prefix: "/system", kind: "a provider"}}
	c := &cobra.Command{
		Use:   "why NAME",
		Short: "Say what a function is doing, what is wrong with it, and what was decided about it, with the reasons",
		Long: `why shows how many instances of a function are ready, its problem if it has one, and the
latest decisions about it, the newest last: which instances were started, resized, parked or
stopped, and why. The provider remembers the latest 200 decisions of a function, and forgets all
when it restarts.

The exit status is 1 if there is no such function. The user and password are those of the
provider's system routes. Without --password-file, why uses the credentials of "faas-infer up"
for a provider on this machine.`,
		Example: `  faas-infer why mnist
  faas-infer why mnist.team-a --follow
  faas-infer why mnist -o json | jq -r '.events[].text'
  faas-infer why mnist --url http://10.0.0.5:8080 --password-file password.txt`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			switch y.output {
			case "table", "json":
				y.json = y.json || y.output == "json"
			default:
				return fmt.Errorf("--output %q: it must be table or json", y.output)
			}
			if y.limit < 1 {
				return fmt.Errorf("--limit %d: it must be at least 1", y.limit)
			}
			return y.run(c.Context(), c.OutOrStdout(), args[0])
		},
	}
	y.register(c.Flags())
	c.Flags().BoolVarP(&y.follow, "follow", "f", false, "go on and print each new decision, also while the provider restarts; with JSON, one in a line")
	c.Flags().IntVar(&y.limit, "limit", 20, "how many decisions, at most 1000")
	c.Flags().StringVarP(&y.output, "output", "o", "table", "table or json")
	return c
}

func (y *whyCommand) run(ctx context.Context, out io.Writer, name string) error {
	var answer whyAnswer
	if err := y.read(ctx, "/function/"+url.PathEscape(name), &answer.Function); err != nil {
		return y.unknown(ctx, name, err)
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
		var refused *refusedError
		err := y.events(ctx, name, answer.Next, 1000, &next)
		switch {
		case errors.As(err, &refused):
			return err
		case err != nil:
			continue // The provider restarts, or the user has stopped this.
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

// read makes a GET request and parses its answer.
func (y *whyCommand) read(ctx context.Context, path string, into any) error {
	text, err := y.do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("--url %s: it does not answer like %s; give the provider's URL: %w", y.url, y.kind, err)
	}
	return nil
}

// events reads the decisions about a function after an ID.
func (y *whyCommand) events(ctx context.Context, name string, since uint64, limit int, into *provider.Events) error {
	return y.read(ctx, fmt.Sprintf("/events?function=%s&since=%d&limit=%d", url.QueryEscape(name), since, limit), into)
}

// unknown adds the names of like functions to the error about one that is not there.
func (y *whyCommand) unknown(ctx context.Context, name string, err error) error {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.code != http.StatusNotFound {
		return err
	}
	bare, namespace, qualified := strings.Cut(name, ".")
	var all []types.FunctionStatus
	if y.read(ctx, "/functions?namespace="+url.QueryEscape(namespace), &all) != nil {
		return err
	}
	// Cobra knows how alike names are.
	known := &cobra.Command{Use: "functions", SuggestionsMinimumDistance: 2}
	for _, f := range all {
		known.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	}
	like := known.SuggestionsFor(bare)
	if len(like) == 0 {
		return fmt.Errorf("there is no function %q; faas-cli list shows those that there are", name)
	}
	if slices.Sort(like); qualified {
		for i := range like {
			like[i] += "." + namespace
		}
	}
	return fmt.Errorf("there is no function %q; did you mean %s?", name, strings.Join(like, " or "))
}

// print writes a function's state and its decisions.
func (y *whyCommand) print(out io.Writer, a whyAnswer) error {
	if y.json {
		return json.NewEncoder(out).Encode(a)
	}
	f := a.Function
	var text strings.Builder
	fmt.Fprintf(&text, "%s.%s: %d of %d instances ready, image %s\n", f.Name, f.Namespace, f.AvailableReplicas, f.Replicas, f.Image)
	if f.Annotations != nil {
		for _, about := range []struct{ key, name string }{
			{annotation.InferProblem, "Problem"}, {annotation.InferProgress, "Progress"}, {annotation.InferPlan, "Plan"}, {annotation.InferReach, "Sizes"},
		} {
			if said := (*f.Annotations)[about.key]; said != "" {
				fmt.Fprintf(&text, "%s: %s\n", about.name, said)
			}
		}
	}
	if len(a.Events.Events) == 0 {
		fmt.Fprintln(&text, "Nothing was decided about it since the provider started.")
	}
	if _, err := io.WriteString(out, decisions.Printable(text.String())); err != nil {
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
	if y.json {
		return json.NewEncoder(out).Encode(d)
	}
	_, err := fmt.Fprintf(out, "%s  %s\n", d.At.Local().Format(time.DateTime), decisions.Printable(d.Text))
	return err
}
