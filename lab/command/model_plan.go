package command

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/infaas"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/variant"
)

// planOptions are the flags of "model plan".
type planOptions struct {
	variants            string
	load, slack, lambda float64
	accuracy            float64
	latency             time.Duration
	json                bool
}

func newModelPlanCommand() *cobra.Command {
	var o planOptions
	c := &cobra.Command{
		Use:   "plan",
		Short: "Find how many instances of which variants carry a load, and what they cost",
		Long: `plan says how many instances of which variants carry a load within a latency and an
accuracy, in three ways:

  cost.ilp         INFaaS' integer program (§4.2.1): capacity for load × slack
  cost.greedy      INFaaS' heuristic (§4.2.2): replicate, upgrade or downgrade
  cost.faas-infer  99 % of the requests in time, if they come at random (Poisson). This
                   plan does not use --slack

The file of variants is that of "faas-infer-lab model pick". A variant that is not inactive has
one running instance for each of its rows. A cost is that of all instances, with λ ×
load time × price for each that must be loaded.`,
		Example: `  faas-infer-lab model plan --variants variants.csv --load 1000 --latency 300ms --slack 1 --lambda 0
  faas-infer-lab model plan --variants variants.csv --load 10 --latency 50ms --accuracy 76 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			rows, err := readTable("variants", o.variants, infaas.ReadVariants)
			if err != nil {
				return err
			}
			r, err := o.plan(rows)
			if err != nil {
				return err
			}
			return r.Print(c.OutOrStdout(), o.json)
		},
	}
	f := c.Flags()
	f.StringVar(&o.variants, "variants", "", "file of variants (required)")
	f.Float64Var(&o.load, "load", 0, "the load in requests/s (required)")
	f.DurationVar(&o.latency, "latency", 0, "the latency objective (required)")
	f.Float64Var(&o.accuracy, "accuracy", 0, "the lowest accuracy in percent (0: any)")
	f.Float64Var(&o.slack, "slack", 1.05, "INFaaS' headroom for spikes: capacity over load")
	f.Float64Var(&o.lambda, "lambda", 0, "weight λ of loading, in 1/s")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	requireFlags(c, "variants", "load", "latency")
	return c
}

func (o *planOptions) check() error {
	number := func(x, least float64) bool { return x >= least && !math.IsInf(x, 1) }
	switch {
	case !number(o.load, 0):
		return fmt.Errorf("--load is %v: give a number of requests per second", o.load)
	case o.latency <= 0:
		return fmt.Errorf("--latency is %v: give a time such as 300ms", o.latency)
	case !(o.accuracy >= 0 && o.accuracy <= 100):
		return fmt.Errorf("--accuracy is %v: give a percentage, from 0 to 100", o.accuracy)
	case !number(o.slack, 1):
		return fmt.Errorf("--slack is %v: give a ratio, at least 1", o.slack)
	case !number(o.lambda, 0):
		return fmt.Errorf("--lambda is %v: give a number, at least 0", o.lambda)
	}
	return nil
}

// plan plans for the load in all three ways.
func (o *planOptions) plan(rows []registration.Placed) (*report.Report, error) {
	query := variant.Query{Accuracy: o.accuracy, Latency: o.latency}
	table := infaas.NewTable(rows)
	if _, ok := table.Get(query); !ok {
		return nil, errors.New("--latency, --accuracy: " + unmet(table, rows, query))
	}
	kinds, app := applicationOf(rows, query, o.load)
	slack := app
	slack.Load *= o.slack
	if most := slack.MaxLoad(); slack.Load > most {
		return nil, fmt.Errorf("--load is %v: times --slack %v it is more than the %.4g requests/s that can be planned for with these variants; give a lower load, in requests/s", o.load, o.slack, most)
	}
	program := infaas.Program{Applications: []infaas.Application{slack}, Lambda: o.lambda}
	solved, err := program.Solve()
	if err != nil {
		return nil, err
	}
	staffed := infaas.Staffed(&app, o.latency, o.lambda)
	if staffed == nil {
		return nil, fmt.Errorf("--latency: no number of instances answers 99 %% of %v requests/s within %v: allow more time or a lower load", o.load, o.latency)
	}
	r := report.New(fmt.Sprintf("model plan --variants %s --load %v --latency %v --slack %v --lambda %v --accuracy %v",
		o.variants, o.load, o.latency, o.slack, o.lambda, o.accuracy), time.Now())
	add := func(name string, counts []int, note string) {
		cost := 0.0
		for i, n := range counts {
			cost += app.Options[i].Price(n, o.lambda)
		}
		r.Add("cost."+name, cost, "", instancesOf(kinds, counts)+note)
	}
	proven := ""
	if solved.Bound < solved.Cost {
		proven = fmt.Sprintf("; the search ended at its limit, and the best plan costs at least %.4g", solved.Bound)
	}
	add("ilp", solved.Counts[0], proven)
	add("greedy", infaas.Greedy(&slack, o.lambda), "")
	add("faas-infer", staffed, "")
	return r, nil
}

// applicationOf returns the variants of a table, each once, and the application of all of them.
// Rows of a variant on several nodes are one variant with several running instances.
func applicationOf(rows []registration.Placed, query variant.Query, load float64) ([]registration.Placed, infaas.Application) {
	var kinds []registration.Placed
	app := infaas.Application{Load: load}
	known := map[variant.Variant]int{}
	for _, row := range rows {
		at, seen := known[row.Variant]
		if !seen {
			at = len(kinds)
			known[row.Variant] = at
			option := infaas.Option{Latency: row.Latency, Cost: row.Cost, Loading: row.Load.Seconds(), Model: row.Model}
			if query.Met(&row.Variant) {
				option.Rate = row.RPS
			}
			kinds, app.Options = append(kinds, row), append(app.Options, option)
		}
		if row.State != variant.Inactive {
			app.Options[at].Running++
		}
	}
	return kinds, app
}

// instancesOf lists counts for people: "2 × B of resnet50 on inferentia, 1 × C of …".
func instancesOf(kinds []registration.Placed, counts []int) string {
	var parts []string
	for i, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d × %s", n, title(&kinds[i])))
		}
	}
	if len(parts) == 0 {
		return "no instance"
	}
	return strings.Join(parts, ", ")
}
