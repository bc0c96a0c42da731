package command

import (
	"errors"
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
that the provider orders. It measures how long the leader of the provider's replicas takes
to decide on a load step, how many pods it creates per second against a client that does
nothing else, how much memory all replicas take, and how much they write to the API server
for each request. Replicas, API server and the simulated nodes share this machine; messages say
how far it is. The second example took 92 s on two cores; the others take many times as long.`,
		Example: `  faas-infer-lab bench fleet
  faas-infer-lab bench fleet --nodes 200 --functions 1000 --pods 1000 --replicas 2 --rounds 2 --rate 50
  faas-infer-lab bench fleet --functions 10000 --replicas 10`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.Log = os.Stderr
			r, err := bench.Run(cmd.Context(), f)
			switch {
			case r == nil:
				return err
			case asJSON:
				return errors.Join(err, r.JSON(cmd.OutOrStdout()))
			}
			return errors.Join(err, r.Table(cmd.OutOrStdout()))
		},
	}
	flags := c.Flags()
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	flags.IntVar(&f.Nodes, "nodes", f.Nodes, "nodes of the cluster")
	flags.StringVar(&f.NodeCPU, "node-cpu", f.NodeCPU, "CPU of each node")
	flags.StringVar(&f.NodeMemory, "node-memory", f.NodeMemory, "memory of each node")
	flags.IntVar(&f.Functions, "functions", f.Functions, "number of functions; one of them gets the load step")
	flags.IntVar(&f.Pods, "pods", f.Pods, "instances of all other functions together")
	flags.IntVar(&f.Replicas, "replicas", f.Replicas, "replicas of the provider, in one process; the first one leads")
	flags.IntVar(&f.Rounds, "rounds", f.Rounds, "number of parts in which the pods are made; a bare client makes as many in turn")
	flags.Float64Var(&f.Rate, "rate", f.Rate, "requests/s of the load step")
	flags.DurationVar(&f.Step, "step", f.Step, "how long the load step lasts")
	flags.DurationVar(&f.Serve, "serve", f.Serve, "how long requests are served to count writes")
	return c
}
