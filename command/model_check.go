package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/history"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// checkOptions are the flags of "model check".
type checkOptions struct {
	profile.PredictOptions
	slo time.Duration
	cpu int
	// reach says for which sizes the objective holds, "" if the model has one size.
	reach string
	// texts says what the model does with texts, "" if it takes none.
	texts string
	// verdict: print a [verdict], for the provider.
	verdict bool
}

func newModelCheckCommand() *cobra.Command {
	var o checkOptions
	var secrets map[string]string
	c := &cobra.Command{
		Use:   "check DIR|FILE|URI",
		Short: "Check whether a model can meet an objective on this machine, and with which configs",
		Long: `check does what the provider does when a function is deployed, and prints the result.
It reads the model, infers its shapes and predicts from its operators how long a batch
takes at every batch size and CPU share. It then lists the configs ⟨batch, CPU⟩ that
meet the objective here, and names the cheapest under load. It measures as a
whole a model with operators of another domain, in Python or in a model server.

The argument is an ONNX file, a bundle, a function's folder with one ONNX file, a folder of a
model of texts as "faas-infer bundle" takes it, the name of a model of the zoo, or the URI of a model, which is downloaded into your cache. The exit status is 1 if the objective cannot be met.

requests/s is the highest rate of an instance with the config (r_up, INFless Eq. 1).
core·ms/request is the CPU time of a request at that rate.`,
		Example: `  faas-infer model check mnist.onnx --slo 50ms
  faas-infer model check ./resnet-50 --slo 200ms --max-batch 16
  faas-infer model check dssm --slo 20ms --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			model := args[0]
			if source.Is(model) {
				var err error
				if model, err = fetchModel(cmd.Context(), model, secrets); err != nil {
					return err
				}
			}
			return o.run(cmd.Context(), model, cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.DurationVar(&o.slo, "slo", 0, "the latency objective, as in com.openfaas.slo.latency (0: show only the times)")
	f.IntVar(&o.MaxBatch, "max-batch", 32, "largest batch, as in com.openfaas.infer.max-batch")
	f.IntVar(&o.cpu, "cpu", 0, "CPU limit in millicores, as in limits.cpu (0: none)")
	profile.DatabaseFlag(c, &o.Database)
	profile.ShapesFlag(c.Flags(), &o.Shapes)
	profile.MaxShapesFlag(c.Flags(), &o.MaxShapes)
	f.StringVar(&o.Prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object")
	f.StringToStringVar(&secrets, "secret", nil, "files with the credentials of a URI's server: model-s3=FILE, model-token=FILE or model-registry=FILE, as a function's secrets have them")
	f.BoolVar(&o.verdict, "verdict", false, "print what the provider answers to an upload")
	_ = f.MarkHidden("verdict") // There is such a flag.
	return c
}

func (o *checkOptions) run(ctx context.Context, argument string, out io.Writer) error {
	if o.slo < 0 || o.cpu < 0 || o.MaxBatch < 1 {
		return errors.New("--slo and --cpu must not be negative, --max-batch at least 1")
	}
	file, err := profile.ModelFile(argument)
	if err != nil {
		return err
	}
	if engines.IsManifest(file) {
		return o.runPython(ctx, file, out)
	}
	texts, err := profile.Texts(argument)
	if err != nil {
		return fmt.Errorf("%s: %w", argument, err)
	}
	if texts != nil {
		o.texts, o.MaxLength = texts.Describe(), texts.MaxLength
	}
	o.Whole = true
	found, err := o.Model(ctx, file)
	if err != nil {
		return err
	}
	s := found.Subject
	o.reach = o.reachOf(found.Profile)
	return o.show(out, s.Name, found.Profile, protocol.Own(s.Prepared.Inputs), protocol.Own(s.Prepared.Outputs))
}

// show prints a model's configs. It returns an error if none meets the objective.
func (o *checkOptions) show(out io.Writer, name string, p *profiler.Profile, inputs, outputs []tensor.Info) (err error) {
	checked := checkModel(p, o.MaxBatch, o.cpu, o.slo)
	if o.verdict {
		return json.NewEncoder(out).Encode(checked.said(name, o.texts, p, o.reach, inputs, outputs))
	}
	if o.JSON {
		err = checked.report(name).JSON(out)
	} else {
		err = errors.Join(describeModel(out, name, o.texts, inputs, outputs), describeBatches(out, p), checked.print(out), o.printReach(out))
	}
	return errors.Join(err, checked.verdict())
}

// reachOf says for which sizes the objective holds, as the provider does.
func (o *checkOptions) reachOf(p *profiler.Profile) string {
	if o.slo == 0 {
		return ""
	}
	f := &provider.Function{Inference: annotation.Inference{
		SLO: o.slo, Percentile: annotation.DefaultPercentile, MaxBatch: o.MaxBatch, Limits: cluster.Resources{CPU: o.cpu},
	}}
	return latency.Rules{Policy: batching.SharedName, Scaling: scaling.DefaultSettings().Options}.Reach(f, p)
}

// printReach writes for which sizes the objective holds.
func (o *checkOptions) printReach(out io.Writer) error {
	if o.reach == "" {
		return nil
	}
	_, err := fmt.Fprintln(out, "Sizes: "+o.reach+".")
	return err
}

// runPython measures a model that cannot be predicted, as the provider does.
func (o *checkOptions) runPython(ctx context.Context, manifest string, out io.Writer) error {
	if err := engines.Of(manifest).Check(ctx, manifest); err != nil {
		return err
	}
	measure := profile.Options{MaxBatch: o.MaxBatch, Shapes: o.Shapes, Prepared: o.Prepared, Until: o.slo / 2}
	found, infos, err := measure.Describe(ctx, manifest)
	if err != nil {
		return err
	}
	return o.show(out, profile.SubjectName(manifest), found.Profile, infos.Inputs, infos.Outputs)
}

// checkedConfig is one config of a model.
type checkedConfig struct {
	capacity.Candidate
	// meets: the config meets the objective.
	meets bool
	// rate is r_up in requests/s, cost is in core·ms per request.
	rate, cost float64
}

// checkedModel holds a model's configs and whether each meets an objective.
type checkedModel struct {
	slo     time.Duration
	memory  int64
	configs []checkedConfig
}

// checkModel evaluates the configs that the provider would choose from.
func checkModel(p *profiler.Profile, maxBatch, limit int, slo time.Duration) checkedModel {
	shares, options := p.Shares(limit), scaling.DefaultSettings().Options
	out := checkedModel{slo: slo, memory: p.Memory}
	usable := map[int]int{}
	for _, share := range shares {
		usable[share] = options.Usable(p.Table(maxBatch, profiler.Share{CPU: share}), slo)
	}
	for _, c := range capacity.Candidates(p.Candidates(shares, maxBatch, 0)) {
		up := capacity.BoundsOf(c.Config, c.Exec, slo, capacity.Exact).Up
		out.configs = append(out.configs, checkedConfig{
			Candidate: c, meets: slo == 0 || c.Config.Batch <= usable[c.Config.CPU], rate: up, cost: float64(c.Config.CPU) / up,
		})
	}
	return out
}

// cheapest returns the config with the lowest cost that meets the objective; false if
// there is none.
func (m checkedModel) cheapest() (checkedConfig, bool) {
	meeting := slices.DeleteFunc(slices.Clone(m.configs), func(c checkedConfig) bool { return !c.meets })
	if len(meeting) == 0 {
		return checkedConfig{}, false
	}
	return slices.MinFunc(meeting, func(a, b checkedConfig) int {
		switch {
		case a.cost < b.cost:
			return -1
		case a.cost > b.cost:
			return 1
		}
		return a.Config.CPU - b.Config.CPU
	}), true
}

// verdict returns an error if no config meets the objective.
func (m checkedModel) verdict() error {
	if _, ok := m.cheapest(); ok || m.slo == 0 {
		return nil
	}
	if len(m.configs) == 0 {
		return errors.New("there is no config to choose from; raise --cpu")
	}
	fastest := slices.MinFunc(m.configs, func(a, b checkedConfig) int { return int(a.Exec - b.Exec) })
	return fmt.Errorf("no config meets an objective of %v here: the fastest, %v, takes %v; the smallest objective that can be met is about %v",
		m.slo, fastest.Config, fastest.Exec.Round(10*time.Microsecond), m.smallest())
}

// describeModel prints a model's inputs and outputs, and what it does with texts, unless texts is "".
func describeModel(out io.Writer, name, texts string, inputs, outputs []tensor.Info) error {
	if texts != "" {
		texts = "  texts    it " + texts + "\n"
	}
	_, err := fmt.Fprintf(out, "%s\n  inputs   %s\n  outputs  %s\n%s\n", name, tensor.Describe(inputs), tensor.Describe(outputs), texts)
	return err
}

// describeBatches says why a model takes one request an execution, or whether requests of different lengths run together.
func describeBatches(out io.Writer, p *profiler.Profile) error {
	about := aboutBatches(p)
	if about == "" {
		return nil
	}
	_, err := fmt.Fprintf(out, "%s\n\n", about)
	return err
}

// aboutBatches is a sentence about what runs together, "" if there is nothing to say.
func aboutBatches(p *profiler.Profile) string {
	switch {
	case p.Unbatched != "":
		return "It takes one request an execution, because " + p.Unbatched + "."
	case p.Lengths != "":
		return sentence(p.Lengths)
	}
	return ""
}

// print writes the table and the verdict for people.
func (m checkedModel) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "batch\tCPU\tin ms\trequests/s\tcore·ms/request\tin time\t")
	meeting := 0
	for _, c := range m.configs {
		in := "no"
		if c.meets {
			in, meeting = "yes", meeting+1
		}
		fmt.Fprintf(w, "%d\t%dm\t%.2f\t%.0f\t%s\t%s\t\n", c.Config.Batch, c.Config.CPU, milliseconds(c.Exec), c.rate, history.Rate(c.cost), in)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	best, ok := m.cheapest()
	if !ok || m.slo == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n%s\n", m.met(meeting, best))
	return err
}

// met says how many configs meet the objective, and which is the cheapest.
func (m checkedModel) met(meeting int, best checkedConfig) string {
	return fmt.Sprintf("An objective of %v can be met by %d of %d configs. The cheapest when busy is a batch of %d on %dm: %.0f requests/s, %s core·ms each; an instance takes about %d MiB.",
		m.slo, meeting, len(m.configs), best.Config.Batch, best.Config.CPU, best.rate, history.Rate(best.cost), m.memory>>20)
}

// report returns the same figures for programs.
func (m checkedModel) report(name string) *report.Report {
	r := report.New("model check "+name, time.Now())
	for _, c := range m.configs {
		key, in := fmt.Sprintf("c%d.b%d.", c.Config.CPU, c.Config.Batch), 0.0
		if c.meets {
			in = 1
		}
		r.Add(key+"exec_ms", milliseconds(c.Exec), "ms", "")
		r.Add(key+"rate", c.rate, "1/s", "")
		r.Add(key+"in_time", in, "", "")
	}
	if best, ok := m.cheapest(); ok {
		r.Add("cheapest.batch", float64(best.Config.Batch), "", "")
		r.Add("cheapest.millicores", float64(best.Config.CPU), "m", "")
		r.Add("cheapest.rate", best.rate, "1/s", "")
	}
	return r
}
