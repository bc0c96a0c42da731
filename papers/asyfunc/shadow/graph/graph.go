// Package graph lists the blocks of a model's graph for package shadow: where package
// model/cut separates the graph, what each block holds, and which tensors go between them. It
// is pure. Begin with [New].
package graph

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// Options say where blocks may end and how long they take.
type Options struct {
	// Tensors is the maximum number of tensors that may go between two blocks; 0 is
	// [Tensors].
	Tensors int
	// Rows and Threads are those of the times, ascending from 1.
	Rows, Threads []int
	// Time is the time in ms of one execution of an operator, by its name.
	Time func(operator string, rows, threads int) float64
	// Load is the time in ms to load a block with that many bytes of weights and operators;
	// nil is no time.
	Load func(weights int64, operators int) float64
	// Call and Own are those of [shadow.Model].
	Call float64
	Own  int64
}

// Tensors is enough for the blocks of residual networks and of detectors with up to six feature
// maps.
const Tensors = 8

// Graph is a model's graph and its blocks.
type Graph struct {
	// Model has the blocks.
	Model *shadow.Model
	cut   *cut.Model
}

// New lists the blocks of a model. The error is for a graph that cannot be divided, whose
// tensors have unknown sizes, or for options without times.
func New(name string, m *cut.Model, o Options) (*Graph, error) {
	if o.Tensors == 0 {
		o.Tensors = Tensors
	}
	g := &Graph{cut: m.Separate(o.Tensors), Model: &shadow.Model{Name: name, Rows: o.Rows, Threads: o.Threads, Call: o.Call, Own: o.Own}}
	layers := g.cut.Layers()
	tensors := make(map[string]*shadow.Tensor)
	for i, l := range layers {
		p, err := g.Part(shadow.Run{First: i, End: i + 1})
		if err != nil {
			return nil, err
		}
		if err := g.exchange(i, p, tensors); err != nil && len(layers) > 1 { // Nothing goes in and out of a twin.
			return nil, fmt.Errorf("block %d (%s): %w", i, l.Name, err)
		}
		g.Model.Blocks = append(g.Model.Blocks, block(l, p, o))
	}
	g.list(tensors)
	g.held(tensors)
	return g, g.Model.Check()
}

// Part is the part of a run: [cut.Part.Model] makes a model of it.
func (g *Graph) Part(r shadow.Run) (*cut.Part, error) {
	group, err := g.cut.Group(r.First, r.End)
	if err != nil {
		return nil, err
	}
	parts, err := group.Cut(group.Whole())
	if err != nil {
		return nil, err
	}
	return parts[0], nil
}

// block is a block without what goes in and out.
func block(l cut.Layer, p *cut.Part, o Options) shadow.Block {
	work := p.Work(1)
	b := shadow.Block{Name: l.Name, MACs: p.FLOPs(1), Weights: p.WeightBytes(), Activations: p.ActivationBytes(1)}
	if o.Load != nil {
		b.Load = o.Load(b.Weights, len(work))
	}
	for _, threads := range o.Threads {
		var row []float64
		for _, rows := range o.Rows {
			ms := 0.0
			for _, w := range work {
				ms += o.Time(w.Name, rows, threads)
			}
			row = append(row, ms)
		}
		b.Ms = append(b.Ms, row)
	}
	return b
}

// exchange adds block i to the tensors that it computes or reads.
func (g *Graph) exchange(i int, p *cut.Part, tensors map[string]*shadow.Tensor) error {
	for _, t := range p.Inputs() {
		size, err := bytes(t)
		if err != nil {
			return err
		}
		have := tensors[t.Name]
		if have == nil {
			have = &shadow.Tensor{Name: t.Name, Bytes: size, From: -1}
			tensors[t.Name] = have
		}
		have.Readers = append(have.Readers, i)
	}
	for _, t := range p.Outputs() {
		size, err := bytes(t)
		if err != nil {
			return err
		}
		out := &shadow.Tensor{Name: t.Name, Bytes: size, From: i}
		if g.cut.Returns(t.Name) {
			out.Readers = append(out.Readers, len(g.cut.Layers()))
		}
		tensors[t.Name] = out
	}
	return nil
}

// bytes is a tensor's size for each row.
func bytes(t cut.Tensor) (int64, error) {
	shape := t.Shape(1)
	if shape == nil {
		return 0, fmt.Errorf("the size of %q is unknown", t.Name)
	}
	n := int64(max(t.Type().Size(), 1))
	for _, d := range shape {
		n *= d
	}
	return n, nil
}

// list puts the tensors into the model, in the order in which they are computed, and sums up
// what goes into and out of each block.
func (g *Graph) list(tensors map[string]*shadow.Tensor) {
	m := g.Model
	for _, t := range tensors {
		slices.Sort(t.Readers)
		m.Tensors = append(m.Tensors, *t)
	}
	slices.SortFunc(m.Tensors, func(a, b shadow.Tensor) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Name, b.Name))
	})
	for i := range m.Blocks {
		m.Blocks[i].In, m.Blocks[i].Out = m.Crossing(shadow.Run{First: i, End: i + 1})
	}
}

// held adds to each block's activations the tensors that earlier blocks computed, or the
// caller sent, for later ones: they stay in memory meanwhile. Tensors that only prepare the model's
// inputs, such as a mask, are not among them.
func (g *Graph) held(tensors map[string]*shadow.Tensor) {
	for _, t := range tensors {
		if len(t.Readers) == 0 {
			continue
		}
		for i := t.From + 1; i < min(t.Readers[len(t.Readers)-1], len(g.Model.Blocks)); i++ {
			if !slices.Contains(t.Readers, i) {
				g.Model.Blocks[i].Activations += t.Bytes
			}
		}
	}
}
