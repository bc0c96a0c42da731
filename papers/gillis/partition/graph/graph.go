// Package graph lists and times the ways to run groups of a model's layers, for the planner
// of package partition: Gillis' options (ICDCS 2021 §III-C) of a graph that package model/cut
// divides. It is pure. Begin with [New].
package graph

import (
	"fmt"
	"maps"
	"slices"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
)

// Options say how groups may be cut and how long operators take.
type Options struct {
	// Batch is the number of rows of a request.
	Batch int
	// Grids are numbers of parts along height and width.
	Grids [][2]int
	// Channels are numbers of parts along the channels of a convolution or the columns of a
	// dense layer; Rows those along the first dimension after the batch of a tensor of three
	// dimensions, such as a sentence's words.
	Channels, Rows []int
	// Time is the time of an operator's work in ms.
	Time func(cut.Work) float64
}

// Published are the options of Gillis' release: 1×1, 1×2, 1×4, 2×2 and 2×4, and dense layers
// by 2 and 4. Time is left out.
func Published() Options {
	return Options{Batch: 1, Grids: [][2]int{{1, 2}, {1, 4}, {2, 2}, {2, 4}}, Channels: []int{2, 4}}
}

// Ours are the options that we try: up to sixteen parts, as in the paper's Fig. 14, with
// channels and rows. Time is left out.
func Ours() Options {
	return Options{
		Batch: 1, Grids: [][2]int{{2, 1}, {3, 1}, {4, 1}, {6, 1}, {8, 1}, {2, 2}, {3, 2}, {4, 2}, {3, 3}, {4, 3}, {4, 4}},
		Channels: []int{2, 3, 4, 6, 8, 12, 16}, Rows: []int{2, 4, 8},
	}
}

// Graph is a model's layers as the planner sees them.
type Graph struct {
	model   *cut.Model
	options Options
	// groups are the options of each group, by its first and end layer.
	groups map[[2]int][]partition.Option
	// cuts are the cuts by the same key and by the option's name.
	cuts map[[2]int]map[string]cut.Cut
}

// New lists and times all options.
func New(m *cut.Model, o Options) (*Graph, error) {
	g := &Graph{model: m, options: o, groups: make(map[[2]int][]partition.Option), cuts: make(map[[2]int]map[string]cut.Cut)}
	for end := 1; end <= len(m.Layers()); end++ {
		if err := g.endsAt(end); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Layers implements [partition.Model].
func (g *Graph) Layers() int { return len(g.model.Layers()) }

// Options implements [partition.Model].
func (g *Graph) Options(first, end int) []partition.Option { return g.groups[[2]int{first, end}] }

// Cut is the cut of an option, and its group.
func (g *Graph) Cut(first, end int, option string) (*cut.Group, cut.Cut, error) {
	c, ok := g.cuts[[2]int{first, end}][option]
	if !ok {
		return nil, c, fmt.Errorf("layers %d to %d have no option %q; they have %q", first, end-1, option, slices.Sorted(maps.Keys(g.cuts[[2]int{first, end}])))
	}
	group, err := g.model.Group(first, end)
	return group, c, err
}

// Correct replaces the times of an option's parts in ms, by what is better known of them.
func (g *Graph) Correct(first, end int, option string, compute []float64) {
	for _, o := range g.groups[[2]int{first, end}] {
		if o.Name != option {
			continue
		}
		for i := range o.Parts {
			o.Parts[i].Compute = compute[i]
		}
	}
}

// endsAt adds the options of all groups that end before a layer.
func (g *Graph) endsAt(end int) error {
	last, err := g.model.Group(end-1, end)
	if err != nil {
		return err
	}
	for _, c := range g.cutsOf(last) {
		g.grow(last, c)
	}
	return nil
}

// cutsOf are the cuts of a group's output: the whole, and the others that it has positions for.
func (g *Graph) cutsOf(last *cut.Group) []cut.Cut {
	all := []cut.Cut{last.Whole()}
	add := func(c cut.Cut, err error) {
		if err == nil {
			all = append(all, c)
		}
	}
	for _, grid := range g.options.Grids {
		add(last.Grid(grid[0], grid[1]))
	}
	for _, n := range g.options.Channels {
		add(last.Channels(n))
	}
	if len(last.Shape(1)) == 3 {
		for _, n := range g.options.Rows {
			add(last.Rows(n))
		}
	}
	return all
}

// grow adds the options of a cut of the groups that end with one layer, from one layer to
// as many as the cut is local in.
func (g *Graph) grow(last *cut.Group, c cut.Cut) {
	regions := c.Regions
	if regions == nil {
		regions = []cut.Region{nil}
	}
	out, ok := outputs(last, c, g.options.Batch)
	if !ok {
		return
	}
	parts := make([][]partition.Part, last.End) // by first layer
	for i, r := range regions {
		part, reached := partition.Part{Out: out[i]}, last.End
		err := g.model.Shares(last.End, r, g.options.Batch, func(s cut.Share) bool {
			if !s.Local || c.Regions != nil && !g.divisible(s.Layer, last.End) {
				return false
			}
			for _, w := range s.Work {
				part.Compute += g.options.Time(w)
			}
			part.Weights += s.Weights
			part.Activations, part.In = max(part.Activations, s.Activations), s.In
			if len(parts[s.Layer]) == i {
				parts[s.Layer] = append(parts[s.Layer], part)
				reached = s.Layer
			}
			return reached == s.Layer
		})
		if err != nil {
			break // Groups with more layers cannot be cut so.
		}
	}
	for first, p := range parts {
		if len(p) != len(regions) {
			continue
		}
		key := [2]int{first, last.End}
		g.groups[key] = append(g.groups[key], partition.Option{Name: c.Name, Parts: p})
		if g.cuts[key] == nil {
			g.cuts[key] = make(map[string]cut.Cut)
		}
		g.cuts[key][c.Name] = c
	}
}

// divisible reports whether a group gives nothing but its last layer's output.
func (g *Graph) divisible(first, end int) bool {
	group, err := g.model.Group(first, end)
	return err == nil && group.Divisible()
}

// outputs are the sizes in bytes of what the parts return; ok is false if the layer cannot be
// cut so.
func outputs(last *cut.Group, c cut.Cut, batch int) (sizes []int64, ok bool) {
	parts, err := last.Cut(c)
	if err != nil {
		return nil, false
	}
	sizes = make([]int64, len(parts))
	for i, p := range parts {
		sizes[i] = p.OutputBytes(batch)
	}
	return sizes, true
}

// PublishedTime times an operator as a platform of the paper does, by kind and size. The
// coefficients are of MXNet's operators (§IV-A): an operator that only gives data another
// shape takes no time there.
func PublishedTime(p *partition.Platform) (func(cut.Work) float64, error) {
	const unit = 1024
	const cell = 4 * 2048 * 2 * 2048 // weights of an LSTM layer of 2048 hidden units
	lines := make(map[string]partition.Line)
	for _, kind := range []string{"relu", "pool", "bn", "add", "conv", "gemm", "lstm"} {
		if _, err := p.ComputeMs(kind, 0); err != nil {
			return nil, err
		}
		lines[kind] = p.Compute[kind]
	}
	return func(w cut.Work) float64 {
		switch w.Type {
		case "Conv":
			return lines["conv"].At(float64(w.FLOPs) / unit)
		case "Gemm", "MatMul":
			if w.Weights > 0 {
				return lines["gemm"].At(float64(w.Weights) / unit)
			}
			return lines["conv"].At(float64(w.FLOPs) / unit)
		case "LSTM", "GRU", "RNN":
			return p.Compute["lstm"].At(float64(w.Weights) / cell)
		case "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool":
			return lines["pool"].At(float64(w.In) / unit)
		case "BatchNormalization":
			return lines["bn"].At(float64(w.In) / unit)
		case "Add", "Sum":
			return lines["add"].At(float64(w.In) / unit)
		case "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout":
			return 0
		}
		return lines["relu"].At(float64(w.In) / unit)
	}, nil
}
