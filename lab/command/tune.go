package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/batchmodel"
	"github.com/faas-infer/faas-infer/lab/plot"
	paper "github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// tuneOptions are the flags of "tune".
type tuneOptions struct {
	arrivals, profile  string
	slo                time.Duration
	percentile, budget float64
	maxBatch, runners  int
	instances          int
	spread             float64
	plot               string
	json               bool
	database, prepared string
}

// newTuneCommand returns "faas-infer-lab tune".
func newTuneCommand() *cobra.Command {
	var o tuneOptions
	c := &cobra.Command{
		Use:   "tune",
		Short: "Choose resources, batch size and timeout for recorded arrivals and an SLO",
		Long: `tune fits a Markovian arrival process to recorded requests. It searches all resources,
batch sizes and timeouts of a dispatching buffer for the cheapest request whose latency
percentile meets the SLO (BATCH Eq. 2), with the exact distribution of latencies. With
--budget it searches for the lowest percentile at that cost per request (Eq. 3); the
SLO, if there is one, must be met too. With --instances, batches wait for one of at most
that many instances, and tune prints the smallest number that meets the objective. If no
small process has the file's moments, for example because of an outage, tune chooses for
the file's requests themselves and says so.

--arrivals is a CSV file, plain or packed by gzip, or ` + command.OneOf(arrivals.BuiltinTraces()) + `. Its first
line names the columns. The first column is timestamp or gap. A timestamp is a request's
time, such as 2023-11-16 18:15:46.68, or in seconds, in order; Azure's traces of LLM
inference are such files. A gap is the seconds from a request to the next. Other columns
are ignored.

--profile says how long batches take and what resources cost:
  2080ti:MODEL   INFless' testbed, ` + command.OneOf(testbedModels()) + `
  lambda:MODEL   AWS Lambda by memory, ` + command.OneOf(lambdaModels()) + `
  local:MODEL    this machine, predicted from its operators' profiles: a model of the
                 zoo or an ONNX file
  FILE.json      a file written by "profile model --out" or "profile predict --out"
A name without a prefix is looked up in this order. The cost of a request on Lambda is in
$ (BATCH Eq. 1). Elsewhere it is in resource·s: a second of a core costs 0.6, a second
of 1 % of a GPU costs 1 (INFless Eq. 2).`,
		Example: `  faas-infer-lab tune --arrivals azure-llm --profile 2080ti:ssd --slo 400ms --percentile 95
  faas-infer-lab tune --arrivals requests.csv --profile lambda:resnet-v2 --slo 8s --plot cdf.svg
  faas-infer-lab tune --arrivals requests.csv --profile lambda:resnet-v2 --budget 4e-5 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.arrivals, "arrivals", "", "file with times or gaps of requests, or a built-in trace")
	f.StringVar(&o.profile, "profile", "", "execution times: 2080ti:MODEL, lambda:MODEL, local:MODEL or a profile's file")
	f.DurationVar(&o.slo, "slo", 0, "latency objective (0: none, with --budget)")
	f.Float64Var(&o.percentile, "percentile", 95, "percentage of the requests that must be answered within the SLO")
	f.Float64Var(&o.budget, "budget", 0, "maximum average cost of a request (0: no bound)")
	f.IntVar(&o.maxBatch, "max-batch", 32, "largest batch")
	f.IntVar(&o.instances, "instances", 0, "maximum number of instances; batches wait for a free one (0: no bound)")
	f.Float64Var(&o.spread, "spread", -1, "standard deviation of the logarithm of execution times (-1: the profile's)")
	f.IntVar(&o.runners, "runners-up", 5, "how many of the next best choices to print")
	f.StringVar(&o.plot, "plot", "", "file for a drawing of the predicted distribution (SVG)")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	profile.DatabaseFlag(c, &o.database)
	f.StringVar(&o.prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	return c
}

// minArrivals is the smallest number of arrivals from which burstiness can be estimated.
const minArrivals = 50

func (o *tuneOptions) check() error {
	switch {
	case o.arrivals == "":
		return errors.New("--arrivals is missing: name a file with times or gaps of requests")
	case o.profile == "":
		return errors.New("--profile is missing: name the execution times, such as 2080ti:ssd")
	case o.slo < 0 || o.budget < 0 || !(o.budget < 1e12):
		return errors.New("--slo and --budget must not be negative")
	case o.slo == 0 && o.budget == 0:
		return errors.New("--slo or --budget is missing: give at least one")
	case !(o.percentile >= 50 && o.percentile <= 99.99):
		return fmt.Errorf("--percentile %v: it must be from 50 to 99.99", o.percentile)
	case o.maxBatch < 1 || o.maxBatch > 256:
		return fmt.Errorf("--max-batch %d: it must be from 1 to 256", o.maxBatch)
	case o.instances < 0:
		return fmt.Errorf("--instances %d: it must be 1 or more, or 0 for no bound", o.instances)
	case o.spread != -1 && !(o.spread >= 0 && o.spread <= latency.MaxSpread):
		return fmt.Errorf("--spread %v: it must be from 0 to %v", o.spread, latency.MaxSpread)
	case o.runners < 0:
		return errors.New("--runners-up must not be negative")
	}
	return nil
}

// tuned is the state and the result of one tune command.
type tuned struct {
	options *tuneOptions
	subject tuneSubject
	times   []time.Duration
	fit     batchmodel.Fitted
	shares  []paper.Share
	configs []cluster.Config
	plan    paper.Plan
	// Latencies with the chosen settings: exact is the prediction, replayed a replay of the
	// recorded requests.
	exact, replayed *latency.Distribution
}

func (o *tuneOptions) run(ctx context.Context, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	t := &tuned{options: o}
	if err := t.fitArrivals(); err != nil {
		return fmt.Errorf("--arrivals %s: %w", o.arrivals, err)
	}
	var err error
	if t.subject, err = o.subject(ctx); err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	if err := t.choose(); err != nil {
		return err
	}
	if o.plot != "" {
		if err := plot.WriteFile(o.plot, t.figure()); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	if o.json {
		return t.report().JSON(out)
	}
	return t.print(out)
}

// fitArrivals reads the arrivals and fits a process to them.
func (t *tuned) fitArrivals() (err error) {
	if t.times, err = arrivals.TraceTimes(t.options.arrivals); err != nil {
		return err
	}
	n := len(t.times)
	if n < minArrivals {
		return fmt.Errorf("%d requests are too few to fit a process: record at least %d", n, minArrivals)
	}
	if t.times[n-1] == t.times[0] {
		return errors.New("all requests came at the same time: the rate is undefined")
	}
	t.fit, err = batchmodel.Fit(t.times)
	return err
}

// choose searches for the best settings and predicts their latencies.
func (t *tuned) choose() error {
	o := t.options
	objective := paper.Objective{
		Arrivals: &t.fit.Process, Recorded: batchmodel.Gaps(t.times), Composed: true, SLO: o.slo, Quantile: o.percentile / 100, Budget: o.budget, Spread: t.spread(),
	}
	t.shares, t.configs = paper.Shares(t.subject.configs(o.maxBatch), t.subject.table, t.subject.price)
	for i := range t.shares {
		t.shares[i].Instances = o.instances
	}
	var err error
	if t.plan, err = paper.Solve(objective, t.shares, o.runners); err != nil {
		return err
	}
	if t.plan.Short != nil {
		return fmt.Errorf("%w (%s)", t.plan.Short, t.describe(t.plan.Best))
	}
	return t.predict()
}

// predict fills exact and replayed for the best choice.
func (t *tuned) predict() (err error) {
	best := t.plan.Best
	exec := make([]float64, best.Batch)
	for k := range exec {
		exec[k] = t.shares[best.Share].Exec[k].Seconds()
	}
	if t.exact, err = t.plan.Predict(best); err != nil {
		return err
	}
	record, err := latency.NewTrace(batchmodel.Gaps(t.times))
	if err != nil {
		return err
	}
	t.replayed, err = record.Replay(best.Batch, best.Timeout.Seconds(), exec, latency.Reality{Spread: t.spread(), Instances: best.Instances})
	return err
}

// spread returns --spread, or the profile's.
func (t *tuned) spread() float64 {
	if t.options.spread >= 0 {
		return t.options.spread
	}
	return min(t.subject.times.Spread(), latency.MaxSpread)
}

// describe returns a choice in words.
func (t *tuned) describe(c paper.Choice) string {
	text := fmt.Sprintf("batches of %d, a timeout of %v, %s", c.Batch, c.Timeout.Round(time.Microsecond), t.subject.resources(t.configs[c.Share]))
	if c.Instances > 0 {
		text = fmt.Sprintf("%d × %s", c.Instances, text)
	}
	return text
}
