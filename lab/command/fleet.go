package command

import (
	"os"

	"github.com/spf13/cobra"

	bench "github.com/faas-infer/faas-infer/lab/kubernetes"
)

func newFleetCommand() *cobra.Command {
	f := bench.Default()
	var asJSON bool
	c := &cobra.Command{
		Use:   "fleet",
		Short: "Measure thousands of nodes and pods: decisions, pods per second, memory, writes",
		Long: `fleet makes nodes that exist only at a real API server and fills them with instances
that the provider orders. It measures how long the provider takes to decide on a load
step, how many pods it creates per second against a client that does nothing else, how
much memory it takes, and how much it writes to the API server for each request.`,
		Example: `  faas-infer-lab bench fleet
  faas-infer-lab bench fleet --nodes 100 --pods 500 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Log = os.Stderr
			r, err := bench.Run(cmd.Context(), f)
			if err != nil {
				return err
			}
			if asJSON {
				return r.JSON(cmd.OutOrStdout())
			}
			return r.Table(cmd.OutOrStdout())
		},
	}
	flags := c.Flags()
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	flags.IntVar(&f.Nodes, "nodes", f.Nodes, "nodes of the cluster")
	flags.StringVar(&f.NodeCPU, "node-cpu", f.NodeCPU, "CPU of each node")
	flags.StringVar(&f.NodeMemory, "node-memory", f.NodeMemory, "memory of each node")
	flags.IntVar(&f.Functions, "functions", f.Functions, "number of functions; one of them gets the load step")
	flags.IntVar(&f.Pods, "pods", f.Pods, "instances of all other functions together")
	flags.IntVar(&f.Rounds, "rounds", f.Rounds, "number of parts in which the pods are made; a bare client makes as many in turn")
	flags.Float64Var(&f.Rate, "rate", f.Rate, "requests/s of the load step")
	flags.DurationVar(&f.Step, "step", f.Step, "how long the load step lasts")
	flags.DurationVar(&f.Serve, "serve", f.Serve, "how long requests are served to count writes")
	return c
}
