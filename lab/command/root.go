// Package command holds the subcommands of faas-infer-lab, one per file: flags and
// wiring, no logic of its own.
package command

import (
	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/lab/accuracy"
)

// NewRootCommand returns the faas-infer-lab command with all its subcommands. Those of
// faas-infer are hidden: the lab runs some of them as processes of their own.
func NewRootCommand() *cobra.Command {
	root := command.NewRootCommand()
	root.Use = "faas-infer-lab"
	root.Short = "Simulate, measure and tune faas-infer"
	root.Long = `faas-infer-lab holds what shows how good faas-infer is: a simulator with the baselines of
the papers, benchmarks with real processes, and the accuracy of its predictions. The
benchmarks start the faas-infer program that lies beside it.`
	root.Example = `  faas-infer-lab simulate testbed-osvt
  faas-infer-lab bench attainment --only 'step|overload'
  faas-infer-lab accuracy dssm-2365`
	for _, c := range root.Commands() {
		c.Hidden = true
	}
	root.AddCommand(newSimulateCommand(), newBenchCommand(), newTuneCommand(), accuracy.NewCommand())
	return root
}
