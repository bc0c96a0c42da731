package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/profiler/operator"
	"github.com/faas-infer/faas-infer/profiler/regression"
)

// Predictor predicts models' times from this machine's rows of a database.
type Predictor struct {
	times  *regression.Model
	caches measuring.Caches
	reuse  cop.Reuse
	refill cop.Refill
}

// NewPredictor returns a predictor for a database.
func NewPredictor(db *database.Database) *Predictor {
	refill, _ := measuring.KnownRefill(db, onnxruntime.Name(), report.Machine())
	return &Predictor{
		times:  regression.New(db.Rows(onnxruntime.Name(), report.Machine()), 0),
		caches: measuring.ReadCaches(), reuse: measuring.KnownReuse(db, onnxruntime.Name(), report.Machine()),
		refill: refill,
	}
}

// Predict returns the times of a graph for every batch and number of threads. change, if it
// is not nil, may modify the options first.
func (p *Predictor) Predict(g *operator.Graph, batches, threads []int, change func(*cop.Options)) (*cop.Prediction, error) {
	o := cop.Options{
		Batches: batches, Threads: threads, Engine: cop.ONNXRuntime, Run: measuring.Run(g),
		ColdShare: func(op *operator.Operator, batch int) float64 {
			return p.reuse.ColdShare(measuring.Working(g, batch), measuring.Alone(op, batch, p.caches))
		},
	}
	if change != nil {
		change(&o)
	}
	return cop.Predict(g, p.times, o)
}

// UnderQuota returns a config's mean time in µs on a part of a core, in millicores.
func (p *Predictor) UnderQuota(g *operator.Graph, c cop.Config, millicores int) float64 {
	working := measuring.Working(g, c.Batch)
	return p.refill.UnderQuota(c, int64((1-p.reuse.Cold(working))*float64(working)), millicores)
}

// PredictOptions are the flags of "profile predict".
type PredictOptions struct {
	MaxBatch, Threads int
	// Until, if it is not 0, leaves out the batches above the first that takes longer.
	Until time.Duration
	// Database is the file of operators' profiles, "" for the usual one; Prepared and
	// Out are as in [Options].
	Database, Prepared, Out string
	JSON                    bool
	// Sketch measures the whole model for about a second, instead of its operators, if
	// the database knows too little of them. The profile is then provisional.
	Sketch bool
	// Whole measures the whole model for about a second if its times do not follow from its
	// operators, whatever is known of these.
	Whole bool
	// Assume takes times from the work of a large model's operators, without a measurement of any. Content must be
	// known. The profile is then provisional.
	Assume bool
	// GPUName, if it is not "", is the GPU whose operators the prediction uses.
	GPUName string
	// Longest takes the longest path through the operators and not their sum, as for an engine
	// that runs branches at the same time (INFless §3.3).
	Longest bool
	// Shapes are the sizes of the model's free dimensions that it is predicted with, MaxShapes the
	// largest.
	Shapes, MaxShapes tensor.Shapes
	// MaxLength is the maximum number of tokens of a text, 0 if the model takes none.
	MaxLength int
	TryFlags
	// Content is the hash of the model, "" if it is unknown. With it, a large model can be
	// sketched before it is prepared.
	Content string
}

func newProfilePredictCommand() *cobra.Command {
	var o PredictOptions
	c := &cobra.Command{
		Use:   "predict MODEL|FILE",
		Short: "Predict a model's times from the profiles of its operators",
		Long: `predict reads the model as the engine runs it and adds up the times of its operators
(INFless §3.3), as the provider does when a function is deployed. It does not run the
model. It first measures operators of a kind that is missing in the database, which
takes about a second. It estimates operators of a known kind by regression, with a
wider margin.`,
		Example: `  faas-infer profile predict resnet-50
  faas-infer profile predict my-model.onnx --max-batch 64 --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.MaxBatch, "max-batch", 32, "largest batch to predict")
	f.IntVar(&o.Threads, "threads", 0, "largest number of threads (0: all cores of this machine)")
	f.DurationVar(&o.Until, "until", 0, "leave out the batches above the first that takes longer than this (0: none)")
	DatabaseFlag(c, &o.Database)
	ShapesFlag(c.Flags(), &o.Shapes)
	MaxShapesFlag(c.Flags(), &o.MaxShapes)
	maxLengthFlag(c.Flags(), &o.MaxLength)
	o.TryFlags.Flags(c.Flags())
	f.StringVar(&o.Prepared, "prepared", "", "directory of prepared models (default: the user's cache)")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object")
	f.StringVar(&o.Out, "out", "", "also write the profile to this file")
	f.StringVar(&o.Content, "content", "", "hash of the model's content, if known: with --sketch, a large model is then not prepared first")
	f.BoolVar(&o.Assume, "assume", false, "with --content, take the times of a large model from the work of its "+
		"operators alone, with a wide margin")
	f.StringVar(&o.GPUName, "gpu-name", "", "predict for shares of this GPU, by its name in faas-infer profile list")
	f.BoolVar(&o.Longest, "longest-path", false, "take the longest path through the model's operators (INFless §3.3), for an engine that runs branches at the same time, and not the sum of all operators")
	f.BoolVar(&o.Sketch, "sketch", false, "if too little is known of the operators, measure the whole model for about a second instead of them")
	return c
}

// maxMargin is the margin above which missing operators are measured instead of predicted
// from other operators.
const maxMargin = 0.25

func (o *PredictOptions) run(ctx context.Context, argument string, out io.Writer) error {
	if o.MaxBatch < 1 || o.Threads < 0 || o.Until < 0 {
		return errors.New("--max-batch must be at least 1, --threads and --until not negative")
	}
	var err error
	if o.Shapes, err = o.TryFlags.Shapes(argument, o.Shapes); err != nil {
		return err
	}
	if o.GPUName != "" {
		p, err := o.onDevice(ctx, argument)
		if err == nil && o.Out != "" {
			err = writeMeasured(profiler.Measured{Profile: p}, o.Out)
		}
		if err != nil {
			return err
		}
		return printProfile("profile predict "+filepath.Base(argument), p, o.JSON, out)
	}
	found, err := o.Model(ctx, argument)
	if err != nil {
		return err
	}
	if o.Out != "" {
		measured := profiler.Measured{Prepared: found.Subject.Prepared.Dir, Profile: found.Profile}
		if err := writeMeasured(measured, o.Out); err != nil {
			return err
		}
	}
	if found.Prediction == nil {
		return printProfile("profile predict "+filepath.Base(found.Subject.Name), found.Profile, o.JSON, out)
	}
	return o.report(found.Subject, found.Prediction, out)
}

// Predicted is a model with its predicted times.
type Predicted struct {
	// Subject is the model. The file of a model of the zoo is removed already.
	Subject *Subject
	// Prediction is nil if the model was sketched or its times were assumed.
	Prediction *cop.Prediction
	// Profile is the prediction, or the sketch, as the provider keeps it.
	Profile *profiler.Profile
}

// Model predicts the model that an argument names: a file, or a model of the zoo.
func (o *PredictOptions) Model(ctx context.Context, argument string) (p Predicted, err error) {
	if err := onnxruntime.Load(""); err != nil {
		return p, err
	}
	models, err := NewSubjects(o.Prepared)
	if err != nil {
		return p, err
	}
	models.Shapes, models.maxRun = o.Shapes, o.MaxRun
	defer models.Close()
	if o.Assume {
		return o.assume(ctx, models, argument)
	}
	if o.Sketch && o.Content != "" {
		if s, err := models.Begin(argument, o.Content); err == nil && s.Prepared.Linked() {
			p.Subject = s
			p.Profile, err = o.sketch(ctx, s)
			return p, err
		}
	}
	if p.Subject, err = models.Prepare(argument); err != nil {
		return p, err
	}
	if p.Subject.Opaque != nil {
		if !o.Sketch && !o.Whole {
			return p, p.Subject.Opaque
		}
		p.Profile, err = o.sketch(ctx, p.Subject)
		return p, err
	}
	p.Prediction, err = o.predict(ctx, p.Subject)
	if o.Sketch && errors.Is(err, errUnsure) || (o.Sketch || o.Whole) && errors.Is(err, ErrUnknown) {
		p.Profile, err = o.sketch(ctx, p.Subject)
		return p, err
	}
	if err != nil {
		return p, err
	}
	if p.Profile, err = o.profile(p.Subject, p.Prediction); err == nil {
		p.Profile.Payloads = payloadsOf(ctx, p.Subject)
	}
	return p, err
}

// EngineMemory is what a process with the engine takes without a model, in bytes.
const EngineMemory = 64 << 20

// errUnsure is the reason for a sketch.
var errUnsure = errors.New("too little is known of its operators")

// ErrUnknown is the reason why a model cannot be predicted. The names of its operators stand before it.
var ErrUnknown = errors.New("is unknown; measure the model as a whole (`faas-infer profile model`)")

// sketch measures the model as a whole for about a second.
func (o *PredictOptions) sketch(ctx context.Context, s *Subject) (*profiler.Profile, error) {
	plan := profiler.Sketch(largestBatch(o.MaxBatch, s.Prepared), o.Until, time.Now, processorTime)
	plan.Waited = waitedTime
	points, err := profiler.Measure(ctx, openSamples(s.Sized, s.Prepared), plan, nil)
	if err != nil {
		return nil, err
	}
	sizes, err := measureSizes(ctx, s.Model, s.Prepared, s.Shapes, o.lengths, 1, sketchedSizes)
	if err != nil {
		return nil, err
	}
	found := &profiler.Profile{
		Model: s.Prepared.Content, Engine: onnxruntime.Name(), Machine: report.Machine(), Provisional: true,
		Measurements: points, MeasuredAt: time.Now(), Payloads: payloadsOf(ctx, s), BySize: sizes, Unbatched: s.Prepared.Unbatched,
		Lengths: s.Prepared.Lengths(),
	}
	if s.Optimised == nil {
		found.Memory = residentPeak()
	} else {
		o.setMemory(found, s)
	}
	return found, nil
}

// largestBatch is the largest batch to measure of a model.
func largestBatch(wanted int, p onnxruntime.Prepared) int {
	if p.Unbatched != "" {
		return 1
	}
	return wanted
}

func payloadsOf(ctx context.Context, s *Subject) *profiler.Payloads {
	if s.Prepared.AsInFile() {
		return measurePayloads(ctx, Signature{s.Sized.Inputs(), s.Model.Outputs()})
	}
	return measurePayloads(ctx, signatureOf(s.Prepared))
}

// signatureOf are the tensors that the engine takes and gives.
func signatureOf(p onnxruntime.Prepared) Signature {
	s := Signature{slices.Clone(p.Inputs), slices.Clone(p.Outputs)}
	for _, infos := range [][]tensor.Info{s.Inputs, s.Outputs} {
		for i := range infos {
			infos[i].Edge = nil
		}
	}
	return s
}

// predict predicts a model's times. Without Sketch it first measures the operators of which
// too little is known.
func (o *PredictOptions) predict(ctx context.Context, s *Subject) (*cop.Prediction, error) {
	if len(s.Optimised.Unknown) > 0 {
		return nil, fmt.Errorf("%s%s: the cost of its operators %s %w",
			Unpredictable, s.Name, strings.Join(s.Optimised.Unknown, ", "), ErrUnknown)
	}
	file, err := OpenOperators(o.Database)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	batches, counts := BatchesUpTo(o.MaxBatch), ThreadsUpTo(o.Threads)
	predictor := NewPredictor(file.Database())
	prediction, err := predictor.Predict(s.Optimised, batches, counts, o.combine)
	if err != nil {
		return nil, err
	}
	if Unsure(prediction) {
		if o.Sketch {
			return nil, errUnsure
		}
		if err := FillOperators(ctx, file, []*operator.Graph{s.Optimised}, batches, counts); err != nil {
			return nil, err
		}
		predictor = NewPredictor(file.Database())
		if prediction, err = predictor.Predict(s.Optimised, batches, counts, o.combine); err != nil {
			return nil, err
		}
	}
	if s.sizes, err = o.predictSizes(s, predictor); err != nil {
		return nil, err
	}
	return prediction, o.correctSizes(ctx, s, prediction)
}

// combine sets the rule by which operators' times make the model's.
func (o *PredictOptions) combine(c *cop.Options) {
	if o.Longest {
		c.Rule = cop.Longest
	}
}

// Unsure reports whether operators are missing or the margin is wide.
func Unsure(p *cop.Prediction) bool {
	return len(p.Missing) > 0 || len(p.Lacking) > 0 && slices.ContainsFunc(p.Configs, func(c cop.Config) bool { return c.Margin > maxMargin })
}

// FillOperators measures the operators of graphs that the database lacks, quickly.
func FillOperators(ctx context.Context, file *operators.File, graphs []*operator.Graph, batches, threads []int) error {
	m, err := measuring.NewMeasurer(ctx, onnxruntime.Name(), report.Machine(), measuring.KnownPace(file.Database(), onnxruntime.Name(), report.Machine()), measuring.Quick)
	if err != nil {
		return err
	}
	defer m.Close()
	w := &work{Measurer: m, file: file, tasks: measuring.Tasks(graphs, batches, threads, measuring.ReadCaches())}
	return w.measureMissing(ctx)
}

// profile returns the prediction as the provider keeps it. For each number of threads, it
// ends with the first batch that takes longer than Until.
func (o *PredictOptions) profile(s *Subject, p *cop.Prediction) (*profiler.Profile, error) {
	var kept []cop.Config
	largest, ended := 0, map[int]bool{}
	for _, c := range p.Configs {
		if !ended[c.Threads] {
			kept, largest = append(kept, c), max(largest, c.Batch)
			ended[c.Threads] = o.Until > 0 && c.Median > float64(o.Until.Microseconds())
		}
	}
	p.Configs = kept
	found, err := p.Profile(s.Prepared.Content, onnxruntime.Name(), report.Machine(), residentOf(o.roomiest(s), largest), time.Now())
	if err == nil {
		found.Longest, found.Own, found.BySize = o.Longest, ownOf(s, o.roomiest(s), largest), s.sizes
		found.Lengths = s.Prepared.Lengths()
	}
	return found, err
}

// roomiest is the graph with the largest sizes that requests may have, whose activations an
// instance must hold.
func (o *PredictOptions) roomiest(s *Subject) *operator.Graph {
	if o.MaxShapes != nil {
		if g, err := s.optimised(o.MaxShapes); err == nil {
			return g
		}
	}
	return s.Optimised
}

// residentOf estimates the resident memory that a measurement of the model would find, in
// bytes. The process with the engine takes 64 MiB. The weights are mapped and partly packed
// a second time. The engine's arena holds about twice the activations. Measured models of
// the zoo took 0.7 to 1.3 times the estimate.
func residentOf(g *operator.Graph, batch int) int64 {
	return EngineMemory + 2*g.WeightBytes() + 2*g.ActivationBytes(batch)
}

// ownOf estimates what of that an instance has to itself if it maps the prepared model's weights, in
// bytes: these are packed already, and it has no second copy. It is 0 if the weights are not mapped.
func ownOf(s *Subject, g *operator.Graph, batch int) int64 {
	if s.Prepared.MappedWeights() == 0 {
		return 0
	}
	return EngineMemory + 2*g.ActivationBytes(batch)
}

func (o *PredictOptions) report(s *Subject, p *cop.Prediction, out io.Writer) error {
	r := report.New("profile predict "+filepath.Base(s.Name), time.Now())
	for _, c := range p.Configs {
		name := fmt.Sprintf("t%d.b%d.", c.Threads, c.Batch)
		r.Add(name+"median_ms", c.Median/1000, "ms", sources(c))
		r.Add(name+"p95_ms", c.P95/1000, "ms", "")
		r.Add(name+"margin_pct", 100*max(profiler.Margin, c.Margin), "%", "")
	}
	if o.JSON {
		return r.JSON(out)
	}
	return r.Table(out)
}

// sources says which sources a prediction is based on, with their shares.
func sources(c cop.Config) string {
	var parts []string
	for source, share := range c.Shares {
		if share >= 0.005 {
			parts = append(parts, fmt.Sprintf("%.0f %% %s", 100*share, cop.Source(source)))
		}
	}
	return strings.Join(parts, ", ")
}
