// Package command holds the subcommands of faas-infer-lab, one per file. It has flags and
// wiring; the logic is in the other packages of lab. Begin with NewRootCommand.
package command

import (
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/lab/accuracy"
)

// NewRootCommand returns the faas-infer-lab command with all its subcommands. It also has
// those of faas-infer, hidden: the lab runs some of them as separate processes.
func NewRootCommand() *cobra.Command {
	root := command.NewRootCommand()
	root.Use = "faas-infer-lab"
	root.Short = "Simulate and measure faas-infer"
	root.Long = `faas-infer-lab evaluates faas-infer. It has a simulator with the baselines of the papers,
benchmarks with real processes, and a check of the predictions' accuracy. The benchmarks start
the faas-infer program in the same directory.`
	root.Example = `  faas-infer-lab simulate testbed-osvt
  faas-infer-lab bench attainment --only 'step|overload'
  faas-infer-lab accuracy dssm-2365`
	for _, c := range root.Commands() {
		c.Hidden = true
	}
	root.AddCommand(newSimulateCommand(), newReproduceCommand(), newBenchCommand(), accuracy.NewCommand())
	return root
}
