// Package command holds the subcommands of faas-infer, one per file. It parses flags and
// connects packages; it has no logic of its own. Begin reading at [NewRootCommand] and,
// for the provider, at [ProviderFlags.Serve].
package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/plug"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
)

func init() {
	if err := process.BindSelf(); err != nil { // The parent said so, and relies on it.
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// NewRootCommand returns the faas-infer command with all its subcommands.
func NewRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "faas-infer",
		Short: "Serve machine-learning models as OpenFaaS functions within a latency objective",
		Long: `faas-infer is an OpenFaaS provider that serves machine-learning models as
functions. Each function states a latency objective (SLO). faas-infer predicts how
fast its model runs at every batch size and CPU share, starts the cheapest mix of
instances, and batches requests so that each is answered in time. A function without
an objective is an ordinary function: any program, with one answer for each request.`,
		Example: `  faas-infer up
  faas-infer bundle ./greet --image greet:v1 --process ./handler --mode http
  faas-infer load --url http://127.0.0.1:8080/function/mnist --rate 200 --duration 20s --slo 50ms`,
		// main prints the error; the usage would hide it.
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	if report.Commit != "" {
		root.Version = report.ReleaseOrCommit()
	}
	root.SetFlagErrorFunc(wrongFlag)
	root.AddCommand(
		instances.NewCommand(),
		newWatchdogCommand(),
		newModelCommand(),
		newBundleCommand(),
		newImportCommand(),
		profile.NewCommand(),
		newUpCommand(),
		newProviderCommand(),
		newConfigCommand(),
		newSetupCommand(),
		newDoctorCommand(),
		load.NewCommand(),
		newDeployCommand(),
		newStatusCommand(),
		newListCommand(),
		newWaitCommand(),
		newLogsCommand(),
		newLoginCommand(),
		newVersionCommand(),
		newAsyncCommand(),
		newVariantsCommand(),
		newWhyCommand(),
		newRolloutCommand(),
		newRedirectCommand(),
	)
	plug.AddTo(root)
	withOutput(root)
	return root
}
