package command

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
	"github.com/faas-infer/faas-infer/lab/knative"
	"github.com/faas-infer/faas-infer/lab/kubelet"
	"github.com/faas-infer/faas-infer/lab/rig"
)

func newKnativeCommand() *cobra.Command {
	b := knative.Default()
	var asJSON bool
	c := &cobra.Command{
		Use:   "knative",
		Short: "Measure cold starts and rollouts on a real kubelet, against Knative Serving",
		Long: `knative starts a Kubernetes with a real kubelet in namespaces of its own, installs
faas-infer and Knative Serving on the same node, and serves one image of a model with both.
It needs root, a checkout as the working directory, and faas-infer-kubernetes beside
faas-infer. Its first run builds Kubernetes and Knative from the Go module proxy.

Knative's networking layer is a proxy in this process, in place of Kourier: a change takes
effect at once for all requests and before Knative learns of it. Knative's revisions have
the container of faas-infer's instance, at most one instance, no limit of concurrency and
no activator in the way of a warm one.

Results:
  cold.ours_ms, cold.knative_ms
                           from a request that finds no pod to its answer
  ratio.cold_over_knative  the first over the second
  rollout.WHO.lost         requests without a good answer while one image replaces the other
  rollout.WHO.late         requests that were answered after more than a second
  rollout.WHO_s            how long it takes until the old image's pods have been told to go`,
		Example: `  faas-infer-lab bench knative --json
  faas-infer-lab bench knative --cold 3 --rollouts 0`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := b.Check(); err != nil {
				return err
			}
			b.Log = os.Stderr
			return onKubelet(c, func() error { return measureKnative(c, b, asJSON) }, knative.Script)
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.IntVar(&b.Cold, "cold", b.Cold, "number of cold starts of each system; 0 for none")
	f.IntVar(&b.Rollouts, "rollouts", b.Rollouts, "number of rollouts of each system; 0 for none")
	f.IntVar(&b.Block, "block", b.Block, "number of rollouts of one system before the other has its turn")
	f.Float64Var(&b.Rate, "rate", b.Rate, "requests/s during a rollout")
	f.DurationVar(&b.Each, "each", b.Each, "shortest time from one rollout to the next")
	f.StringVar(&b.CPU, "cpu", b.CPU, "most that an instance has of a core")
	return c
}

// onKubelet builds what a cluster with a real kubelet needs, with more of the project's scripts, and lets measure run
// in the namespaces of the node.
func onKubelet(c *cobra.Command, measure func() error, scripts ...string) error {
	program, err := rig.FindProgram()
	if err != nil {
		return err
	}
	inside := kubelet.Inside()
	done, err := kubelet.Prepare(c.Context(), program, scripts...)
	if err != nil {
		return err
	}
	var failed error
	code := node.Run(func() int {
		if failed = measure(); failed != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", c.CommandPath(), failed)
			return 1
		}
		return 0
	})
	if inside {
		os.Exit(code) // The first process says what is wrong once.
	}
	if code != 0 && failed == nil {
		failed = errors.New("the measurement in the namespaces failed, see above")
	}
	return errors.Join(failed, done())
}

// measureKnative measures and prints what was measured, also before an error.
func measureKnative(c *cobra.Command, b knative.Bench, asJSON bool) error {
	r, err := knative.Run(c.Context(), b)
	if r == nil {
		return err
	}
	return errors.Join(err, r.Print(c.OutOrStdout(), asJSON))
}
