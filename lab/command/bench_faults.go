package command

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/lab/faults"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/bundle"
)

func newFaultsCommand() *cobra.Command {
	b := faults.Bench{Cores: runtime.NumCPU(), Progress: report.ProgressBar(os.Stderr, "runs")}
	var list bool
	c := benchCommand(&cobra.Command{
		Use:   "faults",
		Short: "Bring one fault after the other under load: what is lost, wrong, late or left behind",
		Long: `faults starts a provider behind the stock gateway with three functions: a model, a
handler in Python and an ordinary function. It loads them with half of what they carry,
requests that come at random, some of them to be answered later by a callback. Then it
brings one fault after the other and looks at every request: was it answered, with its own
answer, and in time? --list says what the faults are, --only chooses some. The models have
an objective; what bounds the ordinary function is its exec_timeout, the SLO and 500 ms.

Results of each fault:
  FAULT.lost                   accepted, and never answered or called back
  FAULT.wrong                  answers that are not their requests', or one too many, and
                               whatever else the fault's sentence rules out
  FAULT.unbounded              answered later than the SLO and a second
  FAULT.within_slo_pct         within the SLO outside the fault, in %
  FAULT.within_slo_pct_during  the same from the fault's beginning until all was well
  FAULT.recover_s              until all is within the SLO for 250 ms: from the end of a
                               fault that lasts, from the beginning of another
  FAULT.leaked                 processes, cgroups, descriptors, goroutines and MiB that are
                               there afterwards and were not before
  FAULT.memory                 the provider's largest memory, in MiB
  FAULT.not_run                the fault could not be brought; the note says why
lost.all, wrong.all, unbounded.all and leaked.all are the sums, and are to be 0. memory.all
is the largest; what exceeds 1.5 times --max-held and 200 MiB counts as leaked, too.
generator.lag_ms is how late the load itself was: it is part of all latencies, and no
request is left out for it.

The gateway and this process have the provider's priority (see "faas-infer up", which gives
it to its gateway): clients are on other machines.

Counts are sums over the --repeat runs, recover_s is the longest. Times are from when a
request was to be sent. The gateway answers an accepted request that goes through the queue
with 202; it counts as well if its callback comes, whenever that is within a minute.

Root has namespaces of its own for all of it: it disturbs no other gateway, and no process,
mount or cgroup outlives it. Without root the gateway needs ports 8080 and 8082, which it
cannot change, and some faults cannot be brought. The gateway is built by "make gateway".

--soak runs a steady and then a changing load instead, and prints by how much memory,
descriptors and the 99th percentile of latency grow per hour (soak.PHASE.…).

All faults three times take about an hour and a half, one fault once about a minute.`,
		Example: `  faas-infer-lab bench faults --list
  faas-infer-lab bench faults --repeat 1 --only stopped
  faas-infer-lab bench faults --seed 7 --history requests.jsonl --json
  faas-infer-lab bench faults --soak 2h`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		return faults.Run(ctx, o, b)
	})
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, arguments []string) error {
		if list {
			return faults.List(cmd.OutOrStdout())
		}
		if err := b.Check(); err != nil {
			return err
		}
		if faults.Inside() {
			return run(cmd, arguments)
		}
		if _, err := rig.FindProgram(); err != nil {
			return err
		}
		// There is no network inside.
		if _, err := environment.Ensure(cmd.Context(), bundle.EnginePython, ""); err != nil {
			return err
		}
		return faults.Kept(cmd.Context(), "bench", "keep")
	}
	c.Flags().BoolVar(&list, "list", false, "print the faults, with a sentence on each")
	faultFlags(c.Flags(), &b)
	return c
}

// faultFlags are the flags of a run.
func faultFlags(f *pflag.FlagSet, b *faults.Bench) {
	f.StringSliceVar(&b.Only, "only", nil, "the faults to bring, with commas between them (default: all)")
	f.IntVar(&b.Repeat, "repeat", 3, "how often each is brought")
	f.Uint64Var(&b.Seed, "seed", 1, "settles when requests come and what faults hit")
	f.DurationVar(&b.SLO, "slo", 100*time.Millisecond, "latency objective of the models, which the ordinary function is held to as well")
	f.Float64Var(&b.Rate, "rate", 0, "requests per second for each function (default: half of what they carry together)")
	f.Float64Var(&b.Async, "async", 0.1, "share of the requests that is answered later, by a callback")
	f.DurationVar(&b.After, "after", 10*time.Second, "how long the load goes on after a fault")
	f.DurationVar(&b.Soak, "soak", 0, "bring no faults, but load the functions for so long")
	f.StringVar(&b.History, "history", "", "write every request to this `file`, a line of JSON each")
}

// newKeepCommand is the process that keeps the bench of faults.
func newKeepCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "keep -- ARGUMENT…",
		Short:   "Start this program and end all that it leaves behind",
		Example: `  faas-infer-lab bench keep -- bench faults --only stopped`,
		Hidden:  true,
		RunE: func(_ *cobra.Command, arguments []string) error {
			code, err := faults.Keep(arguments)
			if err == nil && code != 0 {
				return exitCode(code)
			}
			return err
		},
	}
}

// exitCode is that of a program which has said itself what was wrong.
type exitCode int

// Error implements error.
func (e exitCode) Error() string { return "" }

// ExitCode is what this program exits with.
func (e exitCode) ExitCode() int { return int(e) }

// newSpinCommand is one of the processes that take the cores.
func newSpinCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "spin",
		Short:   "Compute on one core until it is ended",
		Example: `  faas-infer-lab bench spin`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			faults.Spin(cmd.Context())
			return nil
		},
	}
}

// newTakeMemoryCommand is the process that fills a cgroup.
func newTakeMemoryCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "take-memory PROCS",
		Short:   "Move into a cgroup and take memory until it is ended",
		Example: `  faas-infer-lab bench take-memory /sys/fs/cgroup/memory/full/cgroup.procs`,
		Hidden:  true,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			return faults.TakeMemory(cmd.Context(), arguments[0])
		},
	}
}
