package command

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/bench"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newRolloutBenchCommand() *cobra.Command {
	b := bench.Rollout{Rollouts: 40, Every: 10, Rate: 200, SLO: 200 * time.Millisecond, Each: 30 * time.Second, Start: 3 * time.Second}
	var kubernetes bool
	c := benchCommand(&cobra.Command{
		Use:   "rollout",
		Short: "Deploy revisions gradually under load, some with a fault, and count what clients notice",
		Long: `rollout deploys later revisions of mnist with com.openfaas.infer.canary, one after the other, under
load. Each tenth has a fault, in turn: its instances are killed as they start; they are stopped
before they are ready; they run a tenth of the time; or its answers differ, which mirrored
requests show. With --kubernetes instances are pods, the provider has two replicas, and faults
are signals to the processes in the pods.

Results:
  lost, extra_5xx       requests without an answer, or answered 5xx
  alone_missed_pct      requests that missed the objective without a rollout
  harmed_pct            those that missed it during the rollouts of slow candidates
  slow_served           requests of clients that those had at all
  calm_missed_pct       requests that missed it during the rollouts without a fault
  rollback_s            the longest time until a candidate with a fault was removed
  promote_s             the median time until one without a fault took over
  false_promotions      candidates with a fault that took over
  false_rollbacks_pct   candidates without one that were removed`,
		Example: `  faas-infer-lab bench rollout --rollouts 1000 --json
  faas-infer-lab bench rollout --rollouts 50 --kubernetes --json`,
	}, func(ctx context.Context, o rig.Options) (*report.Report, error) {
		if b.Rollouts < 1 || b.Every < 1 || b.Rate <= 0 || b.SLO <= 0 || b.Each <= 0 || b.Start <= 0 {
			return nil, errors.New("--rollouts, --fault-every, --rate, --slo, --each and --start must be positive")
		}
		if kubernetes {
			return bench.RunRolloutOnKubernetes(ctx, o.Log, b)
		}
		return bench.RunRollout(ctx, o, b)
	})
	local := c.RunE
	c.RunE = func(cmd *cobra.Command, arguments []string) error {
		if !kubernetes {
			return local(cmd, arguments)
		}
		if !cmd.Flags().Changed("cpu") {
			b.CPU = "400m"
		}
		return onKubelet(cmd, func() error { return local(cmd, arguments) })
	}
	f := c.Flags()
	f.BoolVar(&kubernetes, "kubernetes", false, "run on a Kubernetes with a real kubelet, which needs root, a checkout as the working directory and faas-infer-kubernetes")
	f.StringVar(&b.CPU, "cpu", "", "most that an instance has of a core (default no limit; with --kubernetes 400m)")
	f.DurationVar(&b.Start, "start", b.Start, "the longest time until a candidate's first instance is ready")
	f.IntVar(&b.Rollouts, "rollouts", b.Rollouts, "how many revisions are deployed")
	f.IntVar(&b.Every, "fault-every", b.Every, "each so many has a fault")
	f.Float64Var(&b.Rate, "rate", b.Rate, "requests per second")
	f.DurationVar(&b.SLO, "slo", b.SLO, "latency objective")
	f.DurationVar(&b.Each, "each", b.Each, "the longest time of one rollout")
	return c
}
