package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/batching/latency"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/batchmodel"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/scaling/otp"
	"github.com/faas-infer/faas-infer/scaling/systems"
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
		Long: `tune fits a Markovian arrival process to recorded requests and searches all
resources, batch sizes and timeouts of a dispatching buffer for the cheapest request
of which the percentile meets the SLO (BATCH Eq. 2), by the exact distribution of
latencies. With --budget it is the lowest percentile that so much per request buys
(Eq. 3), and the SLO, if there is one, must be met, too. With --instances, batches
wait for one of so many at most, and the least number that does is told. Where no
small process has what the file has, as with an outage in it, the choice is made for
the file's requests themselves, and that is told, too.

--arrivals is a CSV file, packed by gzip or not, or ` + command.OneOf(arrivals.BuiltinTraces()) + `. Its first
line names the columns. Either the first is timestamp: a request's time, as
2023-11-16 18:15:46.68 or in seconds, in order; Azure's traces of LLM inference are
such files. Or it is gap: the seconds between a request and the next. Other columns
are not read.

--profile says how long batches take, and what is paid for:
  2080ti:MODEL   INFless' testbed, ` + command.OneOf(testbedModels()) + `
  lambda:MODEL   AWS Lambda by memory, ` + command.OneOf(lambdaModels()) + `
  local:MODEL    this machine, predicted from its operators' profiles: a model of the
                 zoo or an ONNX file
  FILE.json      what "profile model --out" or "profile predict --out" has written
A name without a prefix is looked for in this order. A request on Lambda costs $
(BATCH Eq. 1); elsewhere it costs seconds of 0.6 for each core and 1 for each % of a
GPU (INFless Eq. 2).`,
		Example: `  faas-infer-lab tune --arrivals azure-llm --profile 2080ti:ssd --slo 400ms --percentile 95
  faas-infer-lab tune --arrivals requests.csv --profile lambda:resnet-v2 --slo 8s --plot cdf.svg
  faas-infer-lab tune --arrivals requests.csv --profile lambda:resnet-v2 --budget 4e-5 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.arrivals, "arrivals", "", "file of times or gaps of requests, or a built-in trace")
	f.StringVar(&o.profile, "profile", "", "whose times: 2080ti:MODEL, lambda:MODEL, local:MODEL or a profile's file")
	f.DurationVar(&o.slo, "slo", 0, "latency objective (0: none, with --budget)")
	f.Float64Var(&o.percentile, "percentile", 95, "how many % of the requests are to be answered within the SLO")
	f.Float64Var(&o.budget, "budget", 0, "the most that a request may cost on average (0: no bound)")
	f.IntVar(&o.maxBatch, "max-batch", 32, "largest batch")
	f.IntVar(&o.instances, "instances", 0, "how many instances there can be, for which batches then wait (0: as many as there are batches)")
	f.Float64Var(&o.spread, "spread", -1, "standard deviation of the logarithm of execution times (-1: the profile's)")
	f.IntVar(&o.runners, "runners-up", 5, "how many of the next best choices to print")
	f.StringVar(&o.plot, "plot", "", "file to draw the predicted distribution to, as SVG")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	profile.DatabaseFlag(c, &o.database)
	f.StringVar(&o.prepared, "prepared", "", "directory to keep prepared models in (default: the user's cache)")
	return c
}

// fewest is the least number of arrivals that tell anything of their burstiness.
const fewest = 50

func (o *tuneOptions) check() error {
	switch {
	case o.arrivals == "":
		return errors.New("--arrivals is missing: a file of times or gaps of requests")
	case o.profile == "":
		return errors.New("--profile is missing: whose times batches take, as 2080ti:ssd")
	case o.slo < 0 || o.budget < 0 || !(o.budget < 1e12):
		return errors.New("--slo and --budget must not be negative")
	case o.slo == 0 && o.budget == 0:
		return errors.New("--slo or --budget is missing: what is to be met")
	case !(o.percentile >= 50 && o.percentile <= 99.99):
		return fmt.Errorf("--percentile %v: it must be from 50 to 99.99", o.percentile)
	case o.maxBatch < 1 || o.maxBatch > 256:
		return fmt.Errorf("--max-batch %d: it must be from 1 to 256", o.maxBatch)
	case o.instances < 0:
		return fmt.Errorf("--instances %d: it must be 1 or more, or 0 for as many as there are batches", o.instances)
	case o.spread != -1 && !(o.spread >= 0 && o.spread <= latency.MaxSpread):
		return fmt.Errorf("--spread %v: it must be from 0 to %v", o.spread, latency.MaxSpread)
	case o.runners < 0:
		return errors.New("--runners-up must not be negative")
	}
	return nil
}

// tuned is all that was found out.
type tuned struct {
	options *tuneOptions
	subject tuneSubject
	times   []time.Duration
	fit     batchmodel.Fitted
	shares  []otp.Share
	configs []cluster.Config
	plan    otp.Plan
	// exact and paper are predicted of the choice, replayed is what the recorded
	// requests would have met with it.
	exact, paper, replayed *latency.Distribution
}

func (o *tuneOptions) run(ctx context.Context, out io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	t := &tuned{options: o}
	if err := t.fitted(); err != nil {
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

// fitted reads the arrivals and fits a process.
func (t *tuned) fitted() (err error) {
	if t.times, err = arrivals.TraceTimes(t.options.arrivals); err != nil {
		return err
	}
	n := len(t.times)
	if n < fewest {
		return fmt.Errorf("%d requests are too few to fit a process to: at least %d", n, fewest)
	}
	if t.times[n-1] == t.times[0] {
		return errors.New("all requests came at the same time: gaps of zero have no rate")
	}
	t.fit, err = batchmodel.Fit(t.times)
	return err
}

// choose solves the objective.
func (t *tuned) choose() error {
	o := t.options
	objective := otp.Objective{
		Arrivals: &t.fit.Process, Recorded: t.gaps(), Composed: true, SLO: o.slo, Quantile: o.percentile / 100, Budget: o.budget, Spread: t.spread(),
	}
	t.shares, t.configs = systems.Shares(t.subject.configs(o.maxBatch), t.subject.table, t.subject.price)
	for i := range t.shares {
		t.shares[i].Instances = o.instances
	}
	var err error
	if t.plan, err = otp.Solve(objective, t.shares, o.runners); err != nil {
		return err
	}
	if t.plan.Short != nil {
		return fmt.Errorf("%w (%s)", t.plan.Short, t.describe(t.plan.Best))
	}
	return t.predict()
}

// predict finds what requests meet with the choice, by the models and as recorded.
func (t *tuned) predict() (err error) {
	best := t.plan.Best
	exec := make([]float64, best.Batch)
	for k := range exec {
		exec[k] = t.shares[best.Share].Exec[k].Seconds()
	}
	if t.exact, err = t.plan.Predict(best); err != nil {
		return err
	}
	b := latency.Buffer{Arrivals: t.fit.Process, Batch: best.Batch, Timeout: best.Timeout.Seconds(), Service: exec}
	if t.paper, err = b.Paper(); err != nil {
		return err
	}
	record, err := latency.NewTrace(t.gaps())
	if err != nil {
		return err
	}
	t.replayed, err = record.Replay(best.Batch, best.Timeout.Seconds(), exec, latency.Reality{Spread: t.spread(), Instances: best.Instances})
	return err
}

// gaps are the recorded ones in s.
func (t *tuned) gaps() []float64 {
	var all []float64
	for i := 1; i < len(t.times); i++ {
		all = append(all, (t.times[i] - t.times[i-1]).Seconds())
	}
	return all
}

// spread is that of the times, as asked for.
func (t *tuned) spread() float64 {
	if t.options.spread >= 0 {
		return t.options.spread
	}
	return min(t.subject.times.Spread(), latency.MaxSpread)
}

// describe is a choice in words.
func (t *tuned) describe(c otp.Choice) string {
	text := fmt.Sprintf("batches of %d, a timeout of %v, %s", c.Batch, c.Timeout.Round(time.Microsecond), t.subject.resources(t.configs[c.Share]))
	if c.Instances > 0 {
		text = fmt.Sprintf("%d × %s", c.Instances, text)
	}
	return text
}
