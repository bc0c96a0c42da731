package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/figure"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/variants"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// simulateOptions are the flags of "simulate".
type simulateOptions struct {
	policies       []string
	json           bool
	plot           string
	trace, cluster string
	variants       string
	duration, fork time.Duration
	seed           uint64
	// against is againstLocal to compare the simulator with a provider, "" to simulate a
	// scenario.
	against string
	// seedGiven reports whether --seed was given.
	seedGiven func() bool
}

// everyPolicy is the value of --policy that stands for all policies.
const everyPolicy = "all"

// newSimulateCommand returns "faas-infer-lab simulate".
func newSimulateCommand() *cobra.Command {
	var o simulateOptions
	c := &cobra.Command{
		Use:   "simulate SCENARIO",
		Short: "Run the real policies against simulated machines, side by side",
		Long: `simulate runs a scenario on a virtual clock. Requests queue, are batched, executed
and dropped; instances start, load and stop. The code that the provider runs makes all
decisions. The only thing measured on this machine is the time that scheduling takes
(INFless §5.3).

SCENARIO is the name of a built-in scenario or a YAML file. It describes the machines,
the functions with their objectives, and how requests arrive. The built-in scenarios,
in lab/fleet, explain the keys.

` + namedList("Scenarios", scenarioList()) + `
` + namedList("Policies", policyList()) + `
` + namedList(`Policies that "all" leaves out`, apartList()) + `
INFless' published value stands beside each figure as "paper". --plot draws the
figures of the paper's evaluation with the simulated values.

--against local simulates no scenario. It serves dssm, lstm and mnist on this machine,
at a fifth, a half and four fifths of what an instance carries, and simulates the same
requests. It prints by how much mean latency, 99th percentile, batch sizes and the
share within the SLO differ. That takes some minutes and needs two cores on an
otherwise idle machine.`,
		Example: `  faas-infer-lab simulate testbed-osvt
  faas-infer-lab simulate testbed-qa --policy infless,faas-infer --json
  faas-infer-lab simulate traces --policy all --duration 24h --plot figures
  faas-infer-lab simulate traces --trace my-load.csv --policy batch,faas-infer
  faas-infer-lab simulate my-scenario.yaml --cluster large --seed 7
  faas-infer-lab simulate --against local --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("against") {
				return checkAgainst(o.against, cmd.Flags(), args)
			}
			return oneScenario(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("duration") && o.duration <= 0 {
				return fmt.Errorf("--duration %v: it must be more than 0, such as 10m; without the flag, the scenario's duration applies", o.duration)
			}
			if o.fork < 0 {
				return fmt.Errorf("--fork %v: it must not be negative", o.fork)
			}
			if o.against != "" {
				return o.compare(cmd.Context(), cmd.OutOrStdout())
			}
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.policies, "policy", nil, "policies to compare, or "+everyPolicy+" (default: those that the scenario names, otherwise all)")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	f.StringVar(&o.plot, "plot", "", "directory for the drawings (SVG)")
	f.StringVar(&o.trace, "trace", "", "trace to use instead of the scenario's: a CSV file with a column for each load, in requests per minute")
	f.StringVar(&o.cluster, "cluster", "", "cluster to use instead of the scenario's: testbed, large or a YAML file")
	f.StringVar(&o.variants, "variants", "", "table of variants to use instead of the scenario's: "+strings.Join(variants.Tables(), ", ")+" or a CSV file")
	f.DurationVar(&o.duration, "duration", 0, "how long to simulate, in simulated time (default: the scenario's)")
	f.DurationVar(&o.fork, "fork", 0, "time that the watchdog of openfaas+ takes to start a process for each request (default: the scenario's)")
	f.Uint64Var(&o.seed, "seed", 0, "seed of the random numbers (default: the scenario's)")
	f.StringVar(&o.against, "against", "", "compare the simulator with a real provider: "+againstLocal+", on this machine")
	o.seedGiven = func() bool { return f.Changed("seed") }
	c.AddCommand(newSimulateGillisCommand(), newSimulateAsyFuncCommand())
	return c
}

// oneScenario refuses other than one argument. Its error lists the built-in scenarios.
func oneScenario(_ *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	var names []string
	for _, s := range scenario.Builtin() {
		names = append(names, s.Name)
	}
	return fmt.Errorf("%d scenarios given, simulate takes one: %s, or a file", len(args), strings.Join(names, ", "))
}

// namedList formats rows of a name and its description for a help text.
func namedList(title string, rows [][2]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n", title)
	for _, r := range rows {
		fmt.Fprintf(&b, "  %-14s %s\n", r[0], r[1])
	}
	return b.String()
}

func scenarioList() (rows [][2]string) {
	for _, s := range scenario.Builtin() {
		rows = append(rows, [2]string{s.Name, s.About})
	}
	return rows
}

func policyList() [][2]string {
	names := append(baselines.Names(), baselines.ForVariants()...)
	return described(names[:len(names)-1]) // Both end with faas-infer.
}

func apartList() [][2]string { return described(baselines.Apart()) }

// described returns systems' names with what they say.
func described(names []string) (rows [][2]string) {
	for _, name := range names {
		if s, err := baselines.ByName(name); err == nil {
			rows = append(rows, [2]string{name, s.Says})
		}
	}
	return rows
}

// run simulates a scenario and prints the outcome.
func (o *simulateOptions) run(ctx context.Context, name string, out io.Writer) error {
	overrides := scenario.Overrides{Trace: o.trace, Cluster: o.cluster, Variants: o.variants, Duration: o.duration, Fork: o.fork}
	if o.seedGiven() {
		overrides.Seed = &o.seed
	}
	s, err := scenario.Load(name, overrides)
	if err != nil {
		return err
	}
	systems, err := o.systems(s)
	if err != nil {
		return err
	}
	if err := makeDir("plot", o.plot); err != nil {
		return err
	}
	outcome, err := figure.Run(ctx, s, figure.Options{
		Systems: systems, Drawings: o.plot != "", Progress: report.ProgressBar(os.Stderr, "simulating "+s.Name),
	})
	if err != nil {
		return err
	}
	if err := o.print(out, s, outcome); err != nil {
		return err
	}
	return o.draw(outcome)
}

// systems returns the systems of --policy, each once. Without the flag it returns the
// scenario's, or all that can serve it if the scenario names none.
func (o *simulateOptions) systems(of *scenario.Scenario) ([]systems.System, error) {
	names, every := o.policies, baselines.Names()
	if of.Kind == scenario.Variants {
		every = baselines.ForVariants()
	}
	if len(names) == 0 {
		names = of.Policies
	}
	if len(names) == 0 {
		names = []string{everyPolicy}
	}
	var all []systems.System
	seen := map[string]bool{}
	for _, name := range names {
		wanted := []string{strings.TrimSpace(name)}
		if wanted[0] == everyPolicy {
			wanted = every
		}
		for _, n := range wanted {
			s, err := baselines.ByName(n)
			if err != nil {
				return nil, fmt.Errorf("--policy: %w, or %s", err, everyPolicy)
			}
			if !seen[n] {
				seen[n] = true
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// makeDir makes the directory that a flag names, unless it is "". It creates and removes a file there, to
// refuse an unwritable directory before the simulation and not after it.
func makeDir(flag, dir string) error {
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var probe *os.File
		if probe, err = os.CreateTemp(dir, ".faas-infer-*"); err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("--%s: the directory is not writable: %w", flag, err)
	}
	return nil
}

// print writes the tables, or one object with --json.
func (o *simulateOptions) print(out io.Writer, s *scenario.Scenario, outcome *figure.Outcome) error {
	r := report.New("simulate "+s.Name, time.Now())
	r.Results = outcome.Results
	if o.json {
		return r.JSON(out)
	}
	fmt.Fprintf(out, "%s: %s\nseed %d; %s, commit %s\n", r.Command, s.About, s.Seed, r.Machine, r.Commit)
	for _, t := range outcome.Tables {
		fmt.Fprintln(out)
		if err := t.Print(out); err != nil {
			return err
		}
	}
	return nil
}

// draw writes the drawings and says where they are.
func (o *simulateOptions) draw(outcome *figure.Outcome) error {
	if o.plot == "" {
		return nil
	}
	for _, d := range outcome.Drawings {
		if err := plot.WriteFile(filepath.Join(o.plot, d.Name+".svg"), d.Figure); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	if len(outcome.Drawings) > 0 {
		fmt.Fprintf(os.Stderr, "%d drawings are in %s\n", len(outcome.Drawings), o.plot)
	}
	return nil
}
