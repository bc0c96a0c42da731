package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/openfaas/faas-provider/logs"
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
)

// newLogsCommand returns "faas-infer logs".
func newLogsCommand() *cobra.Command {
	a := newFunctionsClient()
	var (
		follow, times bool
		tail          int
		since         time.Duration
		instance      string
	)
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print what a function's instances have logged",
		Long: `logs prints the lines of all instances of a function, or of one, from the oldest to the
newest. With -o json there is one object a line, with the time and the instance. A terminal gets
spaces in place of control characters. The logs of a deleted function are there for a while.`,
		Example:           "  faas-infer logs mnist\n  faas-infer logs mnist --follow --tail 20\n  faas-infer logs mnist --since 10m -o json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeFunctions,
		RunE: func(c *cobra.Command, args []string) error {
			if tail < 0 {
				return usage(fmt.Errorf("--tail %d: it must be the number of lines, or 0 for all", tail))
			}
			function, namespace := a.address(args[0])
			query := url.Values{"name": {function}, "namespace": {namespace}, "tail": {strconv.Itoa(tail)}, "follow": {strconv.FormatBool(follow)}}
			if since > 0 {
				query.Set("since", time.Now().Add(-since).Format(time.RFC3339))
			}
			if instance != "" {
				query.Set("instance", instance)
			}
			response, err := a.send(c.Context(), http.MethodGet, "/logs?"+query.Encode(), nil)
			if answered(err, http.StatusNotFound) {
				return a.unknown(c.Context(), args[0], err)
			}
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if a.out.Raw() {
				return a.printRaw(c.OutOrStdout(), response.Body)
			}
			return printLogs(c.OutOrStdout(), response.Body, times)
		},
	}
	flags := c.Flags()
	a.registerClient(flags)
	a.registerNamespace(c, "openfaas-fn")
	a.out.Register(flags)
	flags.BoolVarP(&follow, "follow", "f", false, "go on with new lines until Ctrl-C")
	flags.IntVar(&tail, "tail", 0, "number of the newest lines (default all that are kept)")
	flags.DurationVar(&since, "since", 0, "only lines that are not older, such as 10m")
	flags.StringVar(&instance, "instance", "", "only lines of this instance")
	flags.BoolVarP(&times, "timestamps", "t", false, "begin each line with its time and instance")
	return c
}

// printLogs prints the texts of messages, one a line.
func printLogs(w io.Writer, messages io.Reader, times bool) error {
	terminal := report.Interactive(w)
	for d := json.NewDecoder(messages); ; {
		var m logs.Message
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("the provider's logs: %w", err)
		}
		text := m.Text
		if terminal {
			text = report.Printable(text)
		}
		if times {
			text = m.Timestamp.Local().Format(time.RFC3339) + " " + m.Instance + " " + text
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
}

// printRaw prints messages as JSON or YAML, each as soon as it is there.
func (a *functionsClient) printRaw(w io.Writer, messages io.Reader) error {
	for d := json.NewDecoder(messages); ; {
		var m json.RawMessage
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("the provider's logs: %w", err)
		}
		if err := a.out.WriteJSON(w, m); err != nil {
			return err
		}
	}
}
