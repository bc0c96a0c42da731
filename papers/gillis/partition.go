package gillis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// partitionOptions are the flags of "model partition".
type partitionOptions struct {
	goal, platform, memory, out    string
	database, serve                string
	slo, until                     time.Duration
	percentile                     float64
	cpu                            string
	functions, instances, maxBatch int
	check, json                    bool
}

// goals are the values of --for.
var goals = []string{"latency", "cost"}

func newPartitionCommand() *cobra.Command {
	var o partitionOptions
	c := &cobra.Command{
		Use:   "partition DIR|FILE|NAME",
		Short: "Plan how a model is cut over several functions",
		Long: `partition plans how one request of a model is computed by several functions (Gillis,
ICDCS 2021). Layers that follow each other form groups; a group runs whole or in parts at
the same time: by height and width, by channels, or by rows of a sentence. The master sends
each worker what its part needs, may compute a part itself, and joins the answers.

--for latency finds the plan with the least latency, --for cost the cheapest whose latency
is within --slo: on average, or for --percentile of the requests. Both are exact. No
function holds more than --memory of weights and tensors.

--platform is one of the paper's, with the coefficients of its release (` + strings.Join(platformNames(), ", ") + `),
a JSON file in the form of these (partition/platforms), or "local": this machine, with an
instance of one thread on each core. Its times are predicted from measured operators, which
takes minutes for a model whose operators are new. --check cuts the model, runs all
parts in this process with one thread, and compares the answer with the whole model's.

The argument is an ONNX file, a bundle, a folder with one ONNX file, or a name of the zoo.`,
		Example: `  faas-infer model partition vgg-16 --for latency --platform lambda
  faas-infer model partition vgg-11 --for cost --slo 500ms --platform lambda
  faas-infer model partition resnet-50.onnx --platform knix --functions 4 --check
  faas-infer model partition wrn-50-4 --memory 768Mi --out parts`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.goal, "for", "latency", "what to plan for: "+strings.Join(goals, " or "))
	f.DurationVar(&o.slo, "slo", 0, "the latency objective, for --for cost")
	f.Float64Var(&o.percentile, "percentile", 0, "percentage of the requests whose latency counts (0: the mean)")
	f.StringVar(&o.platform, "platform", partitioning.Local, "the platform: local, "+strings.Join(platformNames(), ", ")+" or a JSON file")
	f.StringVar(&o.memory, "memory", "", "memory of a function, such as 768Mi (default: the platform's, and any for local)")
	f.StringVar(&o.cpu, "cpu", "", "CPU of a function, such as 1000m, for --platform local (default: a core)")
	f.IntVar(&o.functions, "functions", 0, "maximum number of functions, the master included (0: any)")
	profile.DatabaseFlag(c, &o.database)
	f.StringVar(&o.out, "out", "", "write the parts as models into this new directory, with the plan, "+planFile+", that instances serve")
	f.BoolVar(&o.check, "check", false, "run all parts here and compare the answer with the whole model's")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	f.StringVar(&o.serve, "serve", "", "only write the plans that the provider chooses from into this new directory")
	f.IntVar(&o.instances, "instances", 0, "with --serve: maximum number of instances that run the model together")
	f.IntVar(&o.maxBatch, "max-batch", 0, "with --serve: largest batch")
	f.DurationVar(&o.until, "until", 0, "with --serve: leave out the batches above the first that takes longer")
	return c
}

// platformNames are the built-in platforms; gcf is the paper's name of google.
func platformNames() []string { return append(partition.Builtin(), "gcf") }

func (o *partitionOptions) validate() error {
	switch {
	case !slices.Contains(goals, o.goal):
		return fmt.Errorf("--for is %q: give %s", o.goal, strings.Join(goals, " or "))
	case o.goal == "cost" && o.slo <= 0:
		return fmt.Errorf("--slo is %v: --for cost needs a time, such as 500ms", o.slo)
	case o.goal == "latency" && o.slo != 0:
		return errors.New("--slo is of no use with --for latency: leave it out, or give --for cost")
	case !(o.percentile == 0 || o.percentile >= 50 && o.percentile < 100):
		return fmt.Errorf("--percentile is %v: give a percentage from 50 to below 100, or 0 for the mean", o.percentile)
	case o.functions < 0:
		return fmt.Errorf("--functions is %d: give 1 or more, or 0 for any number", o.functions)
	}
	return o.validateServe()
}

// millicores reads --cpu.
func (o *partitionOptions) millicores() (int, error) {
	if o.cpu == "" {
		return 0, nil
	}
	cpu, err := annotation.ParseCPU(o.cpu)
	switch {
	case err != nil:
		return 0, fmt.Errorf("--cpu: %w", err)
	case o.platform != partitioning.Local:
		return 0, errors.New("--cpu is of use only with --platform local: other platforms have times of their own")
	case cpu < annotation.LeastCPU:
		return 0, fmt.Errorf("--cpu is %s: it must be at least %dm", o.cpu, annotation.LeastCPU)
	}
	return cpu, nil
}

func threadsText(n int) string {
	if n == 1 {
		return "one thread and core"
	}
	return fmt.Sprintf("%d threads and cores", n)
}

// readPlatform returns the platform of the flags.
func (o *partitionOptions) readPlatform(ctx context.Context) (p *partition.Platform, err error) {
	if o.platform == partitioning.Local {
		p, err = partitioning.Platform(ctx, o.database)
	} else {
		p, err = o.builtinOrFile()
	}
	if err != nil || o.memory == "" {
		return p, err
	}
	bytes, err := annotation.ParseMemory(strings.TrimSuffix(o.memory, "B")) // 768MiB, too.
	if err != nil {
		return nil, fmt.Errorf("--memory %q: give %w", o.memory, err)
	}
	p.MemoryMiB = float64(bytes) / (1 << 20)
	return p, nil
}

func (o *partitionOptions) builtinOrFile() (*partition.Platform, error) {
	name := o.platform
	if name == "gcf" {
		name = "google"
	}
	p, ok := partition.Named(name)
	if !ok {
		f, err := os.Open(o.platform)
		if err != nil {
			return nil, fmt.Errorf("--platform %q is neither built in (%s) nor a file: %w", o.platform, strings.Join(append([]string{partitioning.Local}, platformNames()...), ", "), err)
		}
		defer f.Close()
		if p, err = partition.ReadPlatform(f); err != nil {
			return nil, fmt.Errorf("--platform %s: %w", o.platform, err)
		}
		if p.Name == partitioning.Local {
			return nil, fmt.Errorf("--platform %s: its name is %q, which is this machine's: give it another", o.platform, p.Name)
		}
	}
	return p, nil
}

// outlineOf reads the graph of a file or of a model of the zoo, and none of its weights. It
// returns the file, "" for a model of the zoo.
func outlineOf(argument string) (m *model.Model, file string, err error) {
	if _, err := os.Stat(argument); err != nil {
		if _, ok := zoo.Find(argument); ok {
			m, err = zoo.Make(argument, 1)
			return m, "", err
		}
	}
	if file, err = profile.ModelFile(argument); err != nil {
		return nil, "", err
	}
	m, err = model.ReadOutline(file)
	return m, file, err
}

func (o *partitionOptions) run(ctx context.Context, argument string, out io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	cpu, err := o.millicores()
	if err != nil {
		return err
	}
	p, err := o.readPlatform(ctx)
	if err != nil {
		return err
	}
	m, file, err := outlineOf(argument)
	if err != nil {
		return err
	}
	if o.serve != "" {
		return o.writeServed(ctx, m, file, p)
	}
	t := &trial{partitionOptions: o, source: file, memory: p.Memory()}
	if err := t.begin(); err != nil { // Planning may take minutes.
		return err
	}
	planned, err := partitioning.Plan(ctx, m, p, partitioning.Goal{
		Cheapest: o.goal == "cost", SLO: partition.SLO{Ms: float64(o.slo) / float64(time.Millisecond), Percentile: o.percentile},
		Functions: o.functions, CPU: cpu, Database: o.database, Progress: report.ProgressBar(os.Stderr, "predicting layers"),
	})
	if err != nil {
		return err
	}
	r := reportPlan(planned, "model partition "+argument, p, o.percentile)
	if o.out != "" || o.check {
		t.Planned = planned
		if err := t.run(ctx, m, r); err != nil {
			return err
		}
	}
	if o.json {
		return r.JSON(out)
	}
	if err := printPlan(out, planned); err != nil {
		return err
	}
	return r.Table(out)
}

// reportPlan are the plan's figures.
func reportPlan(p *partitioning.Planned, command string, on *partition.Platform, percentile float64) *report.Report {
	r := report.New(command, time.Now())
	note := "mean, predicted for " + on.Name
	if !p.Settled {
		note += "; the plan still changed when its parts were predicted for the last time"
	}
	r.Add("latency_ms", p.Time.Mean, "ms", note)
	if percentile > 0 {
		r.Add("latency_percentile_ms", p.Time.At(percentile), "ms", fmt.Sprintf("%g %% of the requests are within it", percentile))
	}
	r.Add("whole_ms", p.Whole, "ms", "the whole model on one function, whatever its memory")
	for i, ms := range p.Threads {
		r.Add(fmt.Sprintf("whole_ms.threads%d", i+1), ms, "ms", fmt.Sprintf("the whole model on one instance with %s", threadsText(i+1)))
	}
	r.Add("speedup", p.Whole/p.Time.Mean, "", "")
	r.Add("cost", p.Cost, "ms", "billed time of a request, of all functions")
	r.Add("functions", float64(p.Functions()), "", "the master included")
	r.Add("master_mib", float64(p.Weights+p.Activations)/(1<<20), "MiB", "")
	return r
}

// printPlan prints the plan round by round, as the paper's Fig. 14 shows it.
func printPlan(out io.Writer, p *partitioning.Planned) error {
	const mib = 1 << 20
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "round\tlayers\tfrom\tto\tcut\tmaster\tsent MiB\treturned MiB\tweights MiB\tms")
	layers := p.Cut.Layers()
	for i, r := range p.Rounds {
		var in, back, weights int64
		for k, part := range r.Option.Parts {
			weights = max(weights, part.Weights)
			if k != r.Master {
				in, back = in+part.In, back+part.Out
			}
		}
		master := "–"
		if r.Master != partition.Nobody {
			master = fmt.Sprintf("part %d", r.Master+1)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%.1f\t%.1f\n", i+1, r.End-r.First, layers[r.First].Name, layers[r.End-1].Name,
			r.Option.Name, master, float64(in)/mib, float64(back)/mib, float64(weights)/mib, r.Time.Mean)
	}
	fmt.Fprintln(t)
	return t.Flush()
}
