// Package gillis repeats the evaluation of Gillis (ICDCS 2021 §V) with the coefficients of
// its release: latency-optimal plans on Lambda, KNIX and Google (Fig. 9 and 10), large models
// against a pipeline (Fig. 11), and the cost under an SLO (Fig. 13). Beside the published
// system stands ours: the same computation and network with our options and our codec.
// Begin with [Run].
package gillis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partition/graph"
	"github.com/faas-infer/faas-infer/papers/gillis/partitioning"
)

// published are the speedups that the paper prints (Fig. 9 and 10).
var published = []struct {
	platform, model string
	speedup         float64
}{
	{"lambda", "vgg-11", 1.6}, {"lambda", "vgg-16", 1.9}, {"lambda", "vgg-19", 2.0},
	{"lambda", "wrn-34-3", 1.2}, {"lambda", "wrn-34-4", 1.26}, {"lambda", "wrn-50-3", 1.4},
	{"knix", "vgg-16", 3}, {"knix", "vgg-19", 2.9}, {"knix", "wrn-50-3", 1.8},
	{"knix", "resnet-34", 1.4}, {"knix", "resnet-50", 1.6}, {"knix", "resnet-101", 1.3},
	{"google", "wrn-50-3", 1.2},
}

// pipelined are the speedups over a pipeline that loads part after part (Fig. 11).
var pipelined = []struct {
	model   string
	speedup float64
}{{"wrn-34-5", 9.1}, {"wrn-50-4", 9.2}, {"wrn-50-5", 8.3}}

// storage is the rate at which Fig. 11's pipeline loads weights, in bytes/ms.
const storage = 70e6 / 1000

// objectives are the SLOs of Fig. 13, in ms or as a multiple of the model's least latency.
var objectives = []struct {
	model string
	ms    float64
	times float64
}{
	{"vgg-11", 500, 0}, {"vgg-11", 600, 0}, {"vgg-16", 0, 1.1}, {"vgg-16", 0, 1.3},
	{"wrn-50-4", 0, 1.1}, {"wrn-50-4", 0, 1.3}, {"wrn-50-5", 0, 1.1}, {"wrn-50-5", 0, 1.3},
}

// evaluation is one run of all figures.
type evaluation struct {
	ctx    context.Context
	report *report.Report
	models map[string]*cut.Model
	codec  partition.Codec
}

// Run repeats the figures. progress is told how many of all steps are done.
func Run(ctx context.Context, command string, progress func(done, total int)) (*report.Report, error) {
	e := &evaluation{ctx: ctx, report: report.New(command, time.Now()), models: make(map[string]*cut.Model)}
	if err := e.measureCodec(); err != nil {
		return nil, err
	}
	var steps []func() error
	for _, p := range published {
		steps = append(steps, func() error { return e.speedup(p.platform, p.model, p.speedup) })
	}
	for _, p := range pipelined {
		steps = append(steps, func() error { return e.pipeline(p.model, p.speedup) })
	}
	for _, o := range objectives {
		steps = append(steps, func() error { return e.cost(o.model, o.ms, o.times) })
	}
	for _, name := range clustered {
		steps = append(steps, func() error { return e.leastSLO(name) })
	}
	for i, step := range steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		progress(i, len(steps))
		if err := step(); err != nil {
			return nil, err
		}
	}
	progress(len(steps), len(steps))
	return e.report, nil
}

// measureCodec measures how long our codec takes on this machine.
func (e *evaluation) measureCodec() (err error) {
	if e.codec, err = partitioning.Codec(); err != nil {
		return err
	}
	e.report.Add("codec_ms_per_mib.encode", e.codec.Encode.A, "ms", fmt.Sprintf("median; the release's is %.0f on Lambda", 0.22*256))
	e.report.Add("codec_ms_per_mib.decode", e.codec.Decode.A, "ms", fmt.Sprintf("median; the release's is %.0f on Lambda", 0.16*256))
	return nil
}

func (e *evaluation) model(name string) (*cut.Model, error) {
	if m := e.models[name]; m != nil {
		return m, nil
	}
	made, err := zoo.Make(name, 1)
	if err != nil {
		return nil, err
	}
	m, err := cut.New(made)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e.models[name] = m
	return m, nil
}

// system is one way to plan.
type system struct {
	name      string
	options   graph.Options
	placement partition.Placement
	ours      bool // with our codec
}

// gillis and ours are the published system and ours. placed is the published one under an
// SLO, where it places the parts as it likes (§IV-C3).
func gillis() system { return system{"gillis", graph.Published(), partition.WheneverItFits, false} }
func placed() system { return system{"gillis", graph.Published(), partition.WhereItHelps, false} }
func ours() system   { return system{"ours", graph.Ours(), partition.WhereItHelps, true} }

// planned is a model on a platform, with all that can be planned there.
type planned struct {
	*partition.Space
	// whole is the time of the model on one function in ms, weights its size in bytes.
	whole   float64
	weights int64
}

func (e *evaluation) plan(s system, platform, name string) (*planned, error) {
	m, err := e.model(name)
	if err != nil {
		return nil, err
	}
	p, ok := partition.Named(platform)
	if !ok {
		return nil, fmt.Errorf("platform %q is not built in", platform)
	}
	if s.ours {
		p.Codec = e.codec
	}
	if s.options.Time, err = graph.PublishedTime(p); err != nil {
		return nil, err
	}
	g, err := graph.New(m, s.options)
	if err != nil {
		return nil, err
	}
	out := &planned{}
	for i := range g.Layers() {
		layer := g.Options(i, i+1)[0].Parts[0]
		out.whole += layer.Compute
		out.weights += layer.Weights
	}
	out.Space, err = partition.NewSpace(g, p, partition.Limits{Placement: s.placement})
	return out, err
}

// speedup is the latency of the whole model on one function over the least of a plan.
func (e *evaluation) speedup(platform, name string, paper float64) error {
	for _, s := range []system{gillis(), ours()} {
		began := time.Now()
		p, err := e.plan(s, platform, name)
		if err != nil {
			return err
		}
		plan, err := p.Fastest(0)
		if err != nil {
			return err
		}
		e.report.Add(fmt.Sprintf("speedup.%s.%s.%s", platform, name, s.name), p.whole/plan.Time.Mean, "",
			fmt.Sprintf("paper %g; %.0f ms whole, %.0f in %d rounds on %d functions", paper, p.whole, plan.Time.Mean, len(plan.Rounds), plan.Functions()))
		if s.ours {
			e.report.Add(fmt.Sprintf("plan_ms.%s.%s.latency", platform, name), float64(time.Since(began).Microseconds())/1000, "ms", "all options of our system")
		}
	}
	return nil
}

// pipeline compares with a function that loads the parts one after another (Fig. 11).
func (e *evaluation) pipeline(name string, paper float64) error {
	for _, s := range []system{gillis(), ours()} {
		p, err := e.plan(s, "lambda", name)
		if err != nil {
			return err
		}
		plan, err := p.Fastest(0)
		if err != nil {
			return err
		}
		pipeline := p.whole + float64(p.weights)/storage
		e.report.Add(fmt.Sprintf("over_pipeline.%s.%s", name, s.name), pipeline/plan.Time.Mean, "",
			fmt.Sprintf("paper %g; a pipeline takes %.0f ms, of which it computes %.0f; the plan %.0f on %d functions", paper, pipeline, p.whole, plan.Time.Mean, plan.Functions()))
	}
	return nil
}

// cost is the billed time under an SLO (Fig. 13).
func (e *evaluation) cost(name string, ms, times float64) error {
	began := time.Now()
	p, err := e.plan(placed(), "lambda", name)
	if err != nil {
		return err
	}
	listed := time.Since(began)
	label := fmt.Sprintf("%gms", ms)
	if times > 0 {
		fastest, err := p.Fastest(0)
		if err != nil {
			return err
		}
		ms, label = times*fastest.Time.Mean, fmt.Sprintf("%gx", times)
	}
	slo := partition.SLO{Ms: ms}
	began = time.Now()
	plan, err := p.Cheapest(slo)
	var infeasible *partition.SLOError
	if errors.As(err, &infeasible) {
		e.report.Add(fmt.Sprintf("cost_ms.%s.%s.exact", name, label), 0, "ms", infeasible.Error())
		return nil
	}
	if err != nil {
		return err
	}
	took := float64((listed + time.Since(began)).Microseconds()) / 1000
	e.report.Add(fmt.Sprintf("cost_ms.%s.%s.exact", name, label), plan.Cost, "ms", fmt.Sprintf("%.0f of %.0f ms, %d functions", plan.Time.Mean, ms, plan.Functions()))
	e.report.Add(fmt.Sprintf("plan_ms.%s.%s.cost", name, label), took, "ms", "all options of the published system, and the search")
	return nil
}
