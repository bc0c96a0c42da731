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
	root.Short = "Simulate, measure and tune faas-infer"
	root.Long = `faas-infer-lab evaluates faas-infer. It has a simulator with the baselines of the papers,
benchmarks with real processes, and a check of the predictions' accuracy. It also plans
for what faas-infer has measured. The benchmarks start the faas-infer program in the same directory.`
	root.Example = `  faas-infer-lab simulate testbed-osvt
  faas-infer-lab bench attainment --only 'step|overload'
  faas-infer-lab accuracy dssm-2365`
	for _, c := range root.Commands() {
		c.Hidden = true
		if c.Name() == "model" {
			addPlans(c)
		}
	}
	root.AddCommand(newSimulateCommand(), newReproduceCommand(), newBenchCommand(), newTuneCommand(), accuracy.NewCommand())
	return root
}

// addPlans adds the commands that choose among a model's variants to "model". The help has no
// others.
func addPlans(model *cobra.Command) {
	for _, c := range model.Commands() {
		c.Hidden = true
	}
	model.Hidden, model.Short, model.Long = false, "Choose among the variants of a model", "These commands choose among the variants of a model that a file lists."
	model.Example = `  faas-infer-lab model pick --variants variants.csv --queries queries.csv
  faas-infer-lab model plan --variants variants.csv --load 1000 --latency 300ms`
	model.AddCommand(newModelPickCommand(), newModelPlanCommand())
}
