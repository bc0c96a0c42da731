package command

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/provider"
)

// newVariantsCommand returns "faas-infer variants".
func newVariantsCommand() *cobra.Command {
	client := &remote{prefix: "/system/variants", kind: "a provider"}
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
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var all []provider.Variant
			return client.call(c, "GET", "/"+url.PathEscape(args[0]), nil, &all, func(w io.Writer) { printVariants(w, all) })
		},
	}
	client.register(c.Flags())
	return c
}

// printVariants writes a table of variants.
func printVariants(w io.Writer, all []provider.Variant) {
	if len(all) == 0 {
		fmt.Fprintln(w, "the times of its model are not known yet")
		return
	}
	fmt.Fprint(w, "VARIANT\tMODEL\tACCURACY\tSTATE\tNODES\tCONFIG\tLATENCY\tRPS\tLOAD\tHOLDS\n")
	for _, v := range all {
		var nodes []string
		for _, n := range v.Nodes {
			nodes = append(nodes, fmt.Sprintf("%s: %d %s", n.Node, n.Instances, n.State))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%dm, %d%% GPU, %d MiB\n", v.Name, cmp.Or(v.Model, "-"), known("%.4g%%", v.Accuracy), v.State,
			cmp.Or(strings.Join(nodes, ", "), "-"), cmp.Or(v.Config, "-"), known("%.3gms", v.LatencyMS), known("%.3g", v.RPS), known("%.3gms", v.LoadMS),
			v.Holds.CPU, v.Holds.GPU, v.Holds.Memory>>20)
	}
}

// known formats a value, and returns "-" for 0, which stands for an unknown one.
func known(format string, value float64) string {
	if value == 0 {
		return "-"
	}
	return fmt.Sprintf(format, value)
}
