package partitioning

import (
	"context"
	"fmt"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/partition"
	"github.com/faas-infer/faas-infer/partition/graph"
)

// Local is the name of this machine's platform.
const Local = "local"

// Goal says what to plan for.
type Goal struct {
	// Cheapest plans for the least cost within the SLO, otherwise for the least latency by the
	// SLO's percentile.
	Cheapest bool
	SLO      partition.SLO
	// Functions is the maximum number of functions, 0 for any.
	Functions int
	// Database is the file of operators' profiles, for this machine.
	Database string
	// Progress is told how many layers are predicted, for this machine.
	Progress func(done, total int)
}

// Planned is a model with its plan.
type Planned struct {
	partition.Plan
	Cut *cut.Model
	// Whole is the time of the whole model on one function in ms.
	Whole float64
	// Settled is false if the plan still changed when its parts had been predicted some times.
	Settled bool

	graph *graph.Graph
	goal  Goal
}

// Plan plans how a model is cut. On this machine the layers are predicted first, and then the
// chosen parts as models of their own.
func Plan(ctx context.Context, m *model.Model, p *partition.Platform, goal Goal) (*Planned, error) {
	c, err := cut.New(m)
	if err != nil {
		return nil, err
	}
	weights := m.OpenWeights()
	defer weights.Close()
	options, predict := graph.Ours(), profile.PredictOptions{Database: goal.Database}
	if p.Name != Local {
		options.Time, err = graph.PublishedTime(p)
	} else {
		var times *LayerTimes
		times, err = Layers(ctx, predict, c, weights, options.Batch, goal.Progress)
		if err == nil {
			options.Time = times.Time
		}
	}
	if err != nil {
		return nil, err
	}
	g, err := graph.New(c, options)
	if err != nil {
		return nil, err
	}
	out := &Planned{Cut: c, graph: g, goal: goal}
	for i := range g.Layers() {
		out.Whole += g.Options(i, i+1)[0].Parts[0].Compute
	}
	if p.Name != Local {
		out.Settled = true
		return out, out.choose(p)
	}
	return out, out.settle(ctx, p, predict, weights)
}

// choose plans with the times so far.
func (p *Planned) choose(on *partition.Platform) error {
	space, err := partition.NewSpace(p.graph, on, partition.Limits{Functions: p.goal.Functions})
	if err != nil {
		return err
	}
	if p.goal.Cheapest {
		p.Plan, err = space.Cheapest(p.goal.SLO)
	} else {
		p.Plan, err = space.Fastest(p.goal.SLO.Percentile)
	}
	return err
}

// settle predicts the chosen parts as models of their own, and plans again, until the plan
// stays, a few times at most: within a layer's whole, an operator's time was only its share of
// multiply-adds.
func (p *Planned) settle(ctx context.Context, on *partition.Platform, predict profile.PredictOptions, weights *model.Weights) error {
	const rounds = 6
	known := make(map[string]bool)
	if err := p.foresee(ctx, predict, weights, 0, p.graph.Layers(), "whole"); err != nil {
		return err
	}
	p.Whole = p.Uncut(0, p.graph.Layers())
	if err := p.choose(on); err != nil {
		return err
	}
	for range rounds {
		stays := true
		for _, r := range p.Rounds {
			key := fmt.Sprint(r.First, r.End, r.Option.Name)
			if known[key] {
				continue
			}
			known[key], stays = true, false
			if err := p.foresee(ctx, predict, weights, r.First, r.End, r.Option.Name); err != nil {
				return err
			}
		}
		if stays {
			p.Settled = true
			return nil
		}
		if err := p.choose(on); err != nil {
			return err
		}
	}
	return nil
}

// foresee predicts the parts of an option as models of their own.
func (p *Planned) foresee(ctx context.Context, predict profile.PredictOptions, weights *model.Weights, first, end int, option string) error {
	parts, _, err := p.Parts(first, end, option)
	if err != nil {
		return err
	}
	times := make([]float64, len(parts))
	for i, part := range parts {
		if times[i], err = PartTime(ctx, predict, part, weights, 1); err != nil {
			return fmt.Errorf("layers %d to %d, part %d: %w", first, end-1, i+1, err)
		}
	}
	p.graph.Correct(first, end, option, times)
	return nil
}

// Uncut is the time of layers in one piece in ms.
func (p *Planned) Uncut(first, end int) float64 {
	for _, o := range p.graph.Options(first, end) {
		if len(o.Parts) == 1 {
			return o.Parts[0].Compute
		}
	}
	return 0
}

// Parts are the parts of a round.
func (p *Planned) Parts(first, end int, option string) ([]*cut.Part, cut.Cut, error) {
	g, c, err := p.graph.Cut(first, end, option)
	if err != nil {
		return nil, c, err
	}
	parts, err := g.Cut(c)
	return parts, c, err
}
