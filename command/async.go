package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider/async"
)

// asyncClient calls the routes of a provider's queue.
type asyncClient struct{ remote }

// newAsyncCommand returns "faas-infer async".
func newAsyncCommand() *cobra.Command {
	a := &asyncClient{remote{prefix: async.Prefix, kind: "a provider with a queue"}}
	c := &cobra.Command{
		Use:   "async",
		Short: "Show the queue of asynchronous invocations, and replay failed ones",
		Long: `async shows the queue of a running provider. A request to /async-function/NAME
waits in the queue until its function has answered and the answer has been posted to
its X-Callback-Url. A request that fails is tried again (com.openfaas.retry.*). One
that keeps failing becomes a dead letter, which stays until you replay or purge it.

The user and password are those of the provider's system routes. Without
--password-file, async uses the credentials of "faas-infer up" for a provider on this
machine.`,
		Example: `  faas-infer async status
  faas-infer async dead
  faas-infer async show 17
  faas-infer async replay 17 18
  faas-infer async replay --all --url http://10.0.0.5:8080 --password-file password.txt`,
	}
	a.register(c.PersistentFlags())
	c.AddCommand(a.statusCommand(), a.deadCommand(), a.showCommand(), a.replayCommand(), a.purgeCommand())
	return c
}

func (a *asyncClient) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Count the requests that wait, are being executed, and were given up", Args: cobra.NoArgs,
		Example: "  faas-infer async status\n  faas-infer async status --json",
		RunE: func(c *cobra.Command, _ []string) error {
			var s async.Status
			return a.get(c, "", &s, func(w io.Writer) {
				fmt.Fprintf(w, "queued\t%d\nin flight\t%d\ndead\t%d\nbytes\t%d\nNATS\t%s\n", s.Queued, s.InFlight, s.Dead, s.Bytes, s.Server)
				if s.BestEffort > 0 {
					fmt.Fprintf(w, "best effort\t%d\n", s.BestEffort)
				}
				if s.Problem != "" {
					fmt.Fprintf(w, "problem\t%s\n", s.Problem)
				}
				if len(s.Functions) > 0 {
					fmt.Fprint(w, "\nFUNCTION\tQUEUED\tIN FLIGHT\n")
				}
				for _, f := range s.Functions {
					fmt.Fprintf(w, "%s\t%d\t%d\n", f.Name, f.Queued, f.InFlight)
				}
			})
		},
	}
}

func (a *asyncClient) deadCommand() *cobra.Command {
	var limit, from uint64
	c := &cobra.Command{
		Use: "dead", Short: "List the requests that were given up, the oldest first", Args: cobra.NoArgs,
		Long: `dead lists the requests that were given up. Reasons:

  failed       every try failed; DETAIL says how the last one failed
  no_function  the function is not deployed (any more)
  callback     the function answered, but its callback URL did not accept the answer
  crashed      the provider died at every try
  expired      a best-effort request that found no room in time
  malformed    the queue's entry is not a request`,
		Example: "  faas-infer async dead\n  faas-infer async dead --from 1001 --limit 1000 --json",
		RunE: func(c *cobra.Command, _ []string) error {
			var letters []async.DeadLetter
			return a.list(c, fmt.Sprintf("/dead?limit=%d&from=%d", limit, from), &letters, func() *report.Table { return letterTable(letters) })
		},
	}
	c.Flags().Uint64Var(&limit, "limit", 100, "how many, at most 1000")
	c.Flags().Uint64Var(&from, "from", 0, "begin with this sequence")
	return c
}

func letterTable(letters []async.DeadLetter) *report.Table {
	t := &report.Table{Columns: []report.Column{{Title: "SEQUENCE", Right: true}, {Title: "TIME"}, {Title: "FUNCTION"}, {Title: "REASON"}, {Title: "TRIES", Right: true},
		{Title: "CALL ID"}, {Title: "DETAIL", Long: true}}}
	if len(letters) == 0 {
		t.Columns = []report.Column{{Title: "there are no dead letters"}}
	}
	for _, l := range letters {
		t.Add(l.Sequence, l.Time.Format(time.DateTime), l.Function, l.Reason, l.Attempts, l.CallID, l.Detail)
	}
	return t
}

func (a *asyncClient) showCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show SEQUENCE", Short: "Show one dead letter with its request", Args: cobra.ExactArgs(1),
		Long: `show prints a dead letter as JSON, with the headers and the body of its request. The
body is in base64, as the gateway queues it.`,
		Example: "  faas-infer async show 17\n  faas-infer async show 17 | jq -r .request.Body | base64 -d",
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := sequences(args); err != nil {
				return err
			}
			var shown async.Shown
			return a.get(c, "/dead/"+args[0], &shown, func(w io.Writer) {
				text, err := json.MarshalIndent(shown, "", "  ")
				if err == nil {
					fmt.Fprintf(w, "%s\n", text)
				}
			})
		},
	}
}

func (a *asyncClient) replayCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "replay {SEQUENCE... | --all}", Short: "Put dead letters back into the queue",
		Long: `replay puts dead letters back into the queue as new requests, with no tries used. It
removes a letter once its request is stored in the queue, so each is replayed once. A
letter whose function is not deployed stays, and the command says so.`,
		Example: "  faas-infer async replay 17 18\n  faas-infer async replay --all",
		RunE: func(c *cobra.Command, args []string) error {
			order := async.ReplayOrder{All: all}
			var err error
			if order.Sequences, err = sequences(args); err != nil {
				return err
			}
			if all == (len(args) > 0) {
				return errors.New("give the sequences to replay, which faas-infer async dead lists, or --all")
			}
			var done async.Replayed
			err = a.call(c, "POST", "/dead/replay", order, &done, func(w io.Writer) {
				fmt.Fprintf(w, "replayed %d\n", done.Replayed)
				for _, f := range done.Failed {
					fmt.Fprintf(w, "%d stays: %s\n", f.Sequence, f.Error)
				}
			})
			if err == nil && len(done.Failed) > 0 {
				err = fmt.Errorf("%d dead letters were not replayed", len(done.Failed))
			}
			return err
		},
	}
	c.Flags().BoolVar(&all, "all", false, "replay all present dead letters")
	return c
}

func (a *asyncClient) purgeCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "purge {SEQUENCE... | --all}", Short: "Remove dead letters for good",
		Long:    `purge removes dead letters. Their requests are lost.`,
		Example: "  faas-infer async purge 17\n  faas-infer async purge --all",
		RunE: func(c *cobra.Command, args []string) error {
			list, err := sequences(args)
			if err != nil {
				return err
			}
			if all == (len(args) > 0) {
				return errors.New("give the sequences to remove, which faas-infer async dead lists, or --all")
			}
			if all {
				var done async.Purged
				return a.call(c, "DELETE", "/dead", nil, &done, func(w io.Writer) { fmt.Fprintf(w, "removed %d\n", done.Purged) })
			}
			for _, seq := range list {
				if err := a.call(c, "DELETE", fmt.Sprintf("/dead/%d", seq), nil, nil, func(w io.Writer) { fmt.Fprintf(w, "removed %d\n", seq) }); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "remove all dead letters")
	return c
}

// sequences reads the numbers of dead letters.
func sequences(args []string) ([]uint64, error) {
	var out []uint64
	for _, arg := range args {
		n, err := strconv.ParseUint(strings.TrimSpace(arg), 10, 64)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("sequence %q: it must be the number of a dead letter; faas-infer async dead lists them", arg)
		}
		out = append(out, n)
	}
	return out, nil
}

// get makes a GET request and prints its answer.
func (a *asyncClient) get(c *cobra.Command, path string, into any, show func(w io.Writer)) error {
	return a.call(c, "GET", path, nil, into, show)
}
