package partitioning

import (
	"context"
	"fmt"

	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/papers/gillis/partition/graph"
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
	// CPU is the share of an instance in millicores, for this machine; 0 is a core.
	CPU int
	// Prepare is that of [Instance].
	Prepare func(ctx context.Context, file, cache string) error
	// Database is the file of operators' profiles, for this machine.
	Database string
	// Progress is told how many layers are predicted, for this machine.
	Progress func(done, total int)
}

// Planner plans how a model is cut, again and again under other limits: what is known of the
// times of layers and parts serves all plans.
type Planner struct {
	cut     *cut.Model
	weights *model.Weights
	graph   *graph.Graph
	on      *partition.Platform
	goal    Goal
	predict Instance
	// foreseen are the options whose parts were predicted as models of their own.
	foreseen map[string]bool
	whole    float64
	threads  []float64
}

// NewPlanner lists and times all ways to run the groups of a model. On this machine the layers
// are predicted, as models of their own. Close it after use.
func NewPlanner(ctx context.Context, m *model.Model, p *partition.Platform, goal Goal) (*Planner, error) {
	c, err := cut.New(m)
	if err != nil {
		return nil, err
	}
	out := &Planner{cut: c, weights: m.OpenWeights(), on: p, goal: goal, predict: Instance{profile.PredictOptions{Database: goal.Database}, goal.CPU, goal.Prepare}, foreseen: make(map[string]bool)}
	if err := out.list(ctx); err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// Close closes the model's weights.
func (p *Planner) Close() { p.weights.Close() }

func (p *Planner) list(ctx context.Context) (err error) {
	options := graph.Ours()
	if p.on.Name != Local {
		options.Time, err = graph.PublishedTime(p.on)
	} else {
		var times *LayerTimes
		times, err = Layers(ctx, p.predict, p.cut, p.weights, options.Batch, p.goal.Progress)
		if err == nil {
			options.Time = times.Time
		}
	}
	if err != nil {
		return err
	}
	p.graph, err = graph.New(p.cut, options)
	return err
}

// Planned is a model with its plan.
type Planned struct {
	partition.Plan
	Cut *cut.Model
	// Whole is the time of the whole model on one function in ms.
	Whole float64
	// Threads are the predicted times of the whole model in ms on one instance of this machine
	// with 1, 2, … threads and cores; none if it does not fit into an instance.
	Threads []float64
	// Settled is false if the plan still changed when its parts had been predicted some times.
	Settled bool

	planner *Planner
}

// Plan plans how a model is cut. On this machine the layers are predicted first, and then the
// chosen parts as models of their own.
func Plan(ctx context.Context, m *model.Model, p *partition.Platform, goal Goal) (*Planned, error) {
	planner, err := NewPlanner(ctx, m, p, goal)
	if err != nil {
		return nil, err
	}
	defer planner.Close()
	return planner.Plan(ctx, *p)
}

// Plan plans for a platform that differs from the planner's in its limits at most.
func (p *Planner) Plan(ctx context.Context, on partition.Platform) (*Planned, error) {
	out := &Planned{Cut: p.cut, planner: p}
	if p.on.Name == Local {
		return out, out.settle(ctx, &on)
	}
	out.Settled, out.Whole = true, p.sum()
	return out, out.choose(&on)
}

// sum is the sum of the layers' times in ms.
func (p *Planner) sum() (ms float64) {
	for i := range p.graph.Layers() {
		ms += p.graph.Options(i, i+1)[0].Parts[0].Compute
	}
	return ms
}

// choose plans with the times so far.
func (p *Planned) choose(on *partition.Platform) error {
	goal := p.planner.goal
	space, err := partition.NewSpace(p.planner.graph, on, partition.Limits{Functions: goal.Functions})
	if err != nil {
		return err
	}
	if goal.Cheapest {
		p.Plan, err = space.Cheapest(goal.SLO)
	} else {
		p.Plan, err = space.Fastest(goal.SLO.Percentile)
	}
	return err
}

// settle predicts the chosen parts as models of their own, and plans again, until the plan
// stays, a few times at most: within a layer's whole, an operator's time was only its share of
// multiply-adds.
func (p *Planned) settle(ctx context.Context, on *partition.Platform) error {
	const rounds = 6
	if err := p.planner.foreseeWhole(ctx, on); err != nil {
		return err
	}
	p.Whole, p.Threads = p.planner.whole, p.planner.threads
	if err := p.choose(on); err != nil {
		return err
	}
	for range rounds {
		stays := true
		for _, r := range p.Rounds {
			news, err := p.planner.foresee(ctx, r.First, r.End, r.Option.Name)
			if err != nil {
				return err
			}
			stays = stays && !news
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

// foreseeWhole predicts the whole model. The time of one that fits into no function is the sum
// of its layers' times: no process should hold all of it.
func (p *Planner) foreseeWhole(ctx context.Context, on *partition.Platform) error {
	if p.whole > 0 {
		return nil
	}
	n := p.graph.Layers()
	for _, o := range p.graph.Options(0, n) {
		if part := &o.Parts[0]; len(o.Parts) == 1 && part.Weights+part.Activations > on.Memory() {
			p.whole = p.sum()
			return nil
		}
	}
	if _, err := p.foresee(ctx, 0, n, "whole"); err != nil {
		return err
	}
	p.whole = p.Uncut(0, n)
	parts, _, err := p.Parts(0, n, "whole")
	if err != nil {
		return err
	}
	for threads := 1; threads <= p.on.MaxParts; threads++ {
		on := p.predict
		on.CPU = 1000 * threads
		found, err := PartTimes(ctx, on, parts[0], p.weights, 1, 0)
		if err != nil {
			return fmt.Errorf("the whole model on %d threads: %w", threads, err)
		}
		p.threads = append(p.threads, found[0].Median/1000)
	}
	return nil
}

// foresee predicts the parts of an option as models of their own, once.
func (p *Planner) foresee(ctx context.Context, first, end int, option string) (news bool, err error) {
	key := fmt.Sprint(first, end, option)
	if p.foreseen[key] {
		return false, nil
	}
	p.foreseen[key] = true
	parts, _, err := p.Parts(first, end, option)
	if err != nil {
		return false, err
	}
	times := make([]float64, len(parts))
	for i, part := range parts {
		found, err := PartTimes(ctx, p.predict, part, p.weights, 1, 0)
		if err != nil {
			return false, fmt.Errorf("layers %d to %d, part %d: %w", first, end-1, i+1, err)
		}
		times[i] = found[0].Median / 1000
	}
	p.graph.Correct(first, end, option, times)
	return true, nil
}

// Uncut is the time of layers in one piece in ms.
func (p *Planner) Uncut(first, end int) float64 {
	for _, o := range p.graph.Options(first, end) {
		if len(o.Parts) == 1 {
			return o.Parts[0].Compute
		}
	}
	return 0
}

// Parts are the parts of a round.
func (p *Planner) Parts(first, end int, option string) ([]*cut.Part, cut.Cut, error) {
	g, c, err := p.graph.Cut(first, end, option)
	if err != nil {
		return nil, c, err
	}
	parts, err := g.Cut(c)
	return parts, c, err
}

// Parts are the parts of a round.
func (p *Planned) Parts(first, end int, option string) ([]*cut.Part, cut.Cut, error) {
	return p.planner.Parts(first, end, option)
}
