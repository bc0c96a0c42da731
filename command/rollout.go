package command

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/rollout"
)

// newRolloutCommand returns "faas-infer rollout".
func newRolloutCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "rollout",
		Short: "Show, promote, abort and undo gradual rollouts of functions",
		Long: `rollout is about functions that are deployed again with com.openfaas.infer.canary. The later
revision, the candidate, first gets a share of the requests. It takes over when it fails and misses
the objective no more often than the present one. Otherwise it is removed, with the reason.`,
		Args: cobra.NoArgs,
	}
	c.AddCommand(newRolloutStatusCommand(), newRolloutHistoryCommand(),
		newRolloutChangeCommand("promote", "Let the candidate take over now",
			"promote ends a rollout: the candidate takes over without further evidence. It fails if no instance of the candidate\nis ready."),
		newRolloutChangeCommand("abort", "Remove the candidate",
			"abort ends a rollout: the candidate is removed, and the present revision answers all requests."),
		newRolloutUndoCommand())
	return c
}

func rolloutPath(a *functionsClient, name string) string {
	function, namespace := a.address(name)
	return "/rollout/" + url.PathEscape(function) + "?namespace=" + url.QueryEscape(namespace)
}

// rollout fetches a function's rollout, or changes it if body is not nil.
func (a *functionsClient) rollout(ctx context.Context, name string, body any) (s provider.RolloutStatus, err error) {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	_, err = a.fetch(ctx, method, rolloutPath(a, name), body, &s)
	if answered(err, http.StatusNotFound) {
		if _, unknown := a.describe(ctx, name); unknown != nil {
			return s, unknown
		}
	}
	return s, err
}

func newRolloutStatusCommand() *cobra.Command {
	a := newFunctionsClient()
	var watch bool
	c := &cobra.Command{
		Use:   "status NAME",
		Short: "Show the rollout of a function, and how the latest one ended",
		Long: `status shows both sides of a rollout with the requests that they have answered since it began.
Below it says what the rollout waits for. Without a rollout it says how the latest one ended.`,
		Example: `  faas-infer rollout status mnist
  faas-infer rollout status mnist.team-a --watch`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFunctions,
		RunE: func(c *cobra.Command, args []string) error {
			return a.printAgain(c, watch, func() (func() error, error) {
				s, err := a.rollout(c.Context(), args[0], nil)
				return func() error { return a.printRollout(c, s) }, err
			})
		},
	}
	a.register(c.Flags())
	a.registerNamespace(c, "that in NAME, or openfaas-fn")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print again every two seconds, until Ctrl-C")
	return c
}

// printRollout prints a table of both sides, and sentences.
func (a *functionsClient) printRollout(c *cobra.Command, s provider.RolloutStatus) error {
	out := c.OutOrStdout()
	if err := a.out.Print(out, s, func() *report.Table { return rolloutTable(s) }); err != nil || a.out.Raw() {
		return err
	}
	width := report.Width(out)
	say := func(format string, args ...any) error {
		_, err := fmt.Fprint(out, report.Wrapped("", decisions.Printable(fmt.Sprintf(format, args...)), width))
		return err
	}
	if r := s.Rollout; r != nil {
		if r.Compared > 0 {
			if err := say("Of %d mirrored requests, %d were answered differently.", r.Compared, r.Different); err != nil {
				return err
			}
		}
		return say("%s: %s.", r.Phase, r.Why)
	}
	if l := s.Last; l != nil {
		ended := "was rolled back"
		if l.Promoted {
			ended = "took over"
		}
		return say("No rollout is in progress. At %s revision %d (image %s) %s: %s.", l.At.Local().Format(time.DateTime), l.Revision, l.Image, ended, l.Why)
	}
	return say("No rollout is in progress, and there was none.")
}

func rolloutTable(s provider.RolloutStatus) *report.Table {
	t := &report.Table{Columns: []report.Column{{Title: "REVISION"}, {Title: "IMAGE"}, {Title: "ROLE"}, {Title: "SHARE", Right: true}, {Title: "REQUESTS", Right: true},
		{Title: "IN TIME", Right: true}, {Title: "FAILED", Right: true}}}
	row := func(revision uint64, image, role string, share int, side rollout.Side) {
		inTime, failed := "-", "-"
		if n := float64(side.Answered); n > 0 {
			inTime = fmt.Sprintf("%.2f %%", 100*(1-float64(side.Missed)/n))
			failed = fmt.Sprintf("%.2f %%", 100*float64(side.Failed)/n)
		}
		t.Add(strconv.FormatUint(revision, 10), image, role, fmt.Sprintf("%d %%", share), strconv.FormatUint(side.Answered, 10), inTime, failed)
	}
	if s.Rollout == nil {
		row(s.Revision, s.Image, "present", 100, rollout.Side{})
		return t
	}
	row(s.Revision, s.Image, "present", 100-s.Rollout.Share, s.Rollout.Present)
	row(s.Rollout.Revision, s.Rollout.Image, "candidate", s.Rollout.Share, s.Rollout.Candidate)
	return t
}

func newRolloutHistoryCommand() *cobra.Command {
	a := newFunctionsClient()
	c := &cobra.Command{
		Use:   "history NAME",
		Short: "List the latest ten revisions of a function",
		Long: `history lists the revisions of a function, the newest last, and how each came. The provider
remembers ten, also over a restart.`,
		Example:           `  faas-infer rollout history mnist`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFunctions,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.rollout(c.Context(), args[0], nil)
			if err != nil {
				return err
			}
			return a.out.Print(c.OutOrStdout(), s.History, func() *report.Table {
				t := &report.Table{Columns: []report.Column{{Title: "REVISION"}, {Title: "AT"}, {Title: "IMAGE"}, {Title: "HOW", Long: true}}}
				for _, r := range s.History {
					t.Add(strconv.FormatUint(r.Revision, 10), r.At.Local().Format(time.DateTime), r.Image, r.How)
				}
				return t
			})
		},
	}
	a.register(c.Flags())
	a.registerNamespace(c, "that in NAME, or openfaas-fn")
	return c
}

// rolloutChange is the body of a change.
type rolloutChange struct {
	Action string `json:"action"`
	To     uint64 `json:"to,omitempty"`
}

func newRolloutChangeCommand(action, short, long string) *cobra.Command {
	a := newFunctionsClient()
	c := &cobra.Command{
		Use: action + " NAME", Short: short, Long: long,
		Example:           "  faas-infer rollout " + action + " mnist",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFunctions,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.rollout(c.Context(), args[0], rolloutChange{Action: action})
			if err != nil {
				return err
			}
			return a.printRollout(c, s)
		},
	}
	a.register(c.Flags())
	a.registerNamespace(c, "that in NAME, or openfaas-fn")
	return c
}

func newRolloutUndoCommand() *cobra.Command {
	a := newFunctionsClient()
	var to uint64
	c := &cobra.Command{
		Use:   "undo NAME",
		Short: "Deploy an earlier revision again, at once",
		Long: strings.TrimSpace(`
undo deploys the latest revision before the present one that runs something else, or the one that
--to names. It takes over at once, without a gradual rollout.`),
		Example: `  faas-infer rollout undo mnist
  faas-infer rollout undo mnist --to 7`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFunctions,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.rollout(c.Context(), args[0], rolloutChange{Action: "undo", To: to})
			if err != nil {
				return err
			}
			return a.out.Print(c.OutOrStdout(), s, func() *report.Table { return rolloutTable(s) })
		},
	}
	a.register(c.Flags())
	a.registerNamespace(c, "that in NAME, or openfaas-fn")
	c.Flags().Uint64Var(&to, "to", 0, "the revision to go back to, from faas-infer rollout history")
	return c
}
