package command

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/history"
)

// newVariantsCommand returns "faas-infer variants".
func newVariantsCommand() *cobra.Command {
	client := newFunctionsClient()
	c := &cobra.Command{
		Use:   "variants NAME",
		Short: "Show the variants of a function's model, with their states",
		Long: `variants shows what the instances of a function load: its model, or the variants of
its bundle. A variant is in one of INFaaS' states:

  inactive    no instance holds a CPU share for it
  active      it serves less than its peak
  overloaded  it gets its peak load (r_up) or more
  interfered  it is not overloaded, and its executions take longer than usual

NODES counts instances by node, with the state there. LATENCY is the time of one request
and RPS the peak, both of one instance with CONFIG. LOAD is how long an instance took to
load it. HOLDS is what its instances hold together.

The user and password are those of the provider's system routes. Without
--password-file, variants uses the credentials of "faas-infer up" for a provider on this
machine.`,
		Example: `  faas-infer variants mnist
  faas-infer variants mnist.team-a --json
  faas-infer variants mnist --url http://10.0.0.5:8080 --password-file password.txt`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: client.completeFunctions,
		RunE: func(c *cobra.Command, args []string) error {
			var all []provider.Variant
			err := client.list(c, "/variants/"+url.PathEscape(args[0]), &all, func() *report.Table { return variantsTable(all) })
			if answered(err, http.StatusNotFound) {
				if _, unknown := client.describe(c.Context(), args[0]); unknown != nil {
					return unknown
				}
			}
			return err
		},
	}
	client.register(c.Flags())
	return c
}

// variantsTable returns a table of variants. There is none before the times of the model are known.
func variantsTable(all []provider.Variant) *report.Table {
	t := &report.Table{Columns: []report.Column{{Title: "VARIANT"}, {Title: "MODEL"}, {Title: "ACCURACY"}, {Title: "STATE"}, {Title: "NODES"},
		{Title: "CONFIG"}, {Title: "LATENCY"}, {Title: "RPS"}, {Title: "LOAD"}, {Title: "HOLDS", Long: true}}}
	if len(all) == 0 {
		t.Columns = []report.Column{{Title: "the times of its model are not known yet"}}
	}
	for _, v := range all {
		var nodes []string
		for _, n := range v.Nodes {
			nodes = append(nodes, fmt.Sprintf("%s: %d %s", n.Node, n.Instances, n.State))
		}
		t.Add(v.Name, cmp.Or(v.Model, "-"), known(v.Accuracy, fmt.Sprintf("%.4g%%", v.Accuracy)), v.State, cmp.Or(strings.Join(nodes, ", "), "-"), cmp.Or(v.Config, "-"),
			known(v.LatencyMS, history.Rate(v.LatencyMS)+"ms"), known(v.RPS, history.Rate(v.RPS)), known(v.LoadMS, history.Rate(v.LoadMS)+"ms"),
			fmt.Sprintf("%dm, %d%% GPU, %d MiB", v.Holds.CPU, v.Holds.GPU, v.Holds.Memory>>20))
	}
	return t
}

// known returns the text of a value, and "-" for 0, which stands for an unknown one.
func known(value float64, text string) string {
	if value == 0 {
		return "-"
	}
	return text
}
