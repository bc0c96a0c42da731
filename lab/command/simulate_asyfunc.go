package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	lab "github.com/faas-infer/faas-infer/lab/asyfunc"
	"github.com/faas-infer/faas-infer/lab/asyfunc/planning"
	"github.com/faas-infer/faas-infer/lab/fleet"
)

// asyfuncOptions are the flags of "simulate asyfunc".
type asyfuncOptions struct {
	policies, models      []string
	json                  bool
	trace, cluster, times string
	each, start           time.Duration
	nodes                 int
	seed                  uint64
}

// The values of --times.
const (
	timesLaw      = "law"
	timesMeasured = "measured"
)

// newSimulateAsyFuncCommand returns "faas-infer-lab simulate asyfunc".
func newSimulateAsyFuncCommand() *cobra.Command {
	var o asyfuncOptions
	c := &cobra.Command{
		Use:   "asyfunc",
		Short: "Repeat the evaluation of AsyFunc: bodies and shadows, BATCH, ours",
		Long: `asyfunc simulates the models of AsyFunc's Table 2 (SoCC 2023) on nodes of its Table 1, one
model at a time, under the Twitter day: of each hour a part, drawn from the process that BATCH's
authors fitted to it. It compares memory, CPU utility and violations of the objective with
BATCH (Fig. 10, 12 and 13), and the policies of Fig. 1 for the first model.

` + namedList("Policies", lab.Policies()) + `
Memory counts weights for each instance, as the paper does, or once for each node ("shared");
activations and the engine's own count in both. The objective is the time of 8 rows on 16
cores, which leaves that config no time to queue; "slo1.5" is with half as much again.

The paper prints no layer times. --times law calculates them: an operator with M multiply-adds and
I elements of input for each row, and W of weights, takes on c cores for b rows
  0.02 ms + (b·M/40e6 + 4·(2·b·I + W)/10e6)·(0.05 + 0.95/c) ms
and S MB of weights load in 6.7 + 0.712·S ms, the line through the two points of §1. --times measured
takes this machine's layers instead, as "faas-infer profile layers" profiles them, and their measured
load times. With more cores than this machine has, t₁ on one thread and t_n on all n of them, a
block takes on c cores t₁·(1 − p + p/c), where p = (1 − t_n/t₁)/(1 − 1/n). A container and its
libraries take --start before that, with either.`,
		Example: `  faas-infer-lab simulate asyfunc --policy all --json
  faas-infer-lab simulate asyfunc --policy asyfunc,faas-infer --model vgg-16 --each 1m
  faas-infer-lab simulate asyfunc --trace my-load.csv --cluster my-nodes.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := c.Flags()
	f.StringSliceVar(&o.policies, "policy", []string{everyPolicy}, "policies to compare, or "+everyPolicy)
	f.StringSliceVar(&o.models, "model", nil, "models of the zoo (default: those of Table 2)")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	f.StringVar(&o.trace, "trace", "", "trace to use instead: a built-in one, or a CSV file of requests' times or of counts")
	f.StringVar(&o.cluster, "cluster", "", "cluster to use instead: testbed, large or a YAML file")
	f.DurationVar(&o.each, "each", 5*time.Minute, "how much of each hour to simulate, up to 1h; of a trace 24 times that")
	f.IntVar(&o.nodes, "nodes", 32, "number of nodes of Table 1: 26 cores, 96 GB; the paper does not say it")
	f.DurationVar(&o.start, "start", 2*time.Second, "time of a container and its libraries; the paper does not say it")
	f.StringVar(&o.times, "times", timesLaw, "times of the layers: "+timesLaw+" or "+timesMeasured)
	f.Uint64Var(&o.seed, "seed", 1, "seed of the arrivals")
	return c
}

// check refuses a flag's value before the work.
func (o *asyfuncOptions) check() error {
	switch {
	case o.each < 10*time.Second || o.each > time.Hour:
		return fmt.Errorf("--each %v: give a time from 10s to 1h", o.each)
	case o.nodes < 1 || o.nodes > 1000:
		return fmt.Errorf("--nodes %d: give a number from 1 to 1000", o.nodes)
	case o.start < 0 || o.start > time.Minute:
		return fmt.Errorf("--start %v: give a time from 0 to 1m", o.start)
	case o.times != timesLaw && o.times != timesMeasured:
		return fmt.Errorf("--times %q: it is %s or %s", o.times, timesLaw, timesMeasured)
	}
	for i, p := range o.policies {
		if o.policies[i] = strings.TrimSpace(p); o.policies[i] == everyPolicy {
			o.policies = nil
			return nil
		}
	}
	if err := lab.CheckPolicies(o.policies); err != nil {
		return fmt.Errorf("--policy: %w, or %s", err, everyPolicy)
	}
	return nil
}

func (o *asyfuncOptions) run(ctx context.Context, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	work := lab.Options{Command: o.command(), Models: o.models, Law: lab.DefaultLaw(), Policies: o.policies, Progress: report.ProgressBar(os.Stderr, "simulating")}
	work.Law.Start = float64(o.start) / float64(time.Millisecond)
	var err error
	if work.Nodes, err = o.place(); err != nil {
		return err
	}
	if o.trace == "" {
		work.Load, err = lab.Twitter(o.each, o.seed)
	} else {
		work.Load, err = lab.Recorded(o.trace, 24*o.each, o.seed)
	}
	if err != nil {
		return err
	}
	if o.times == timesMeasured {
		if work.Models == nil {
			for _, s := range lab.Subjects() {
				work.Models = append(work.Models, s.Zoo)
			}
		}
		if work.Made, err = lab.Measured(ctx, work.Models, work.Law.Own); err != nil {
			return err
		}
		work.Law.LoadFixed = 0 // It is among the measured load times.
	}
	r, err := lab.Run(ctx, work)
	if err != nil {
		return err
	}
	if o.json {
		return r.JSON(out)
	}
	return r.Table(out)
}

// command is what was asked for, with all that changes figures.
func (o *asyfuncOptions) command() string {
	text := fmt.Sprintf("simulate asyfunc --times %s --each %v --start %v --seed %d", o.times, o.each, o.start, o.seed)
	if o.trace != "" {
		text += " --trace " + o.trace
	}
	if o.cluster != "" {
		return text + " --cluster " + o.cluster
	}
	return fmt.Sprintf("%s --nodes %d", text, o.nodes)
}

// place are the nodes.
func (o *asyfuncOptions) place() ([]planning.Node, error) {
	if o.cluster == "" {
		return lab.Table1(o.nodes), nil
	}
	c, err := fleet.Load(o.cluster)
	if err != nil {
		return nil, fmt.Errorf("--cluster: %w", err)
	}
	var nodes []planning.Node
	for _, n := range c.Nodes() {
		if cores := n.Total.CPU / 1000; cores > 0 {
			nodes = append(nodes, planning.Node{Cores: cores, Memory: n.Total.Memory})
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("--cluster %s: no node has a whole core", o.cluster)
	}
	return nodes, nil
}
