package onnxruntime

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// extended is the level up to which parts answer as the whole model does, bit for bit. The
// level above it lays convolutions out in blocks, whose kernels depend on the size.
const extended = ort.GraphOptimizationLevelEnableExtended

// Parts of a model, put together, are the whole model's answer to the last bit (Gillis
// §III-C: partitioning costs no accuracy). Every layer and every four layers are cut in
// every way that they can be, into odd parts too.
func TestPartsAnswerAsTheWhole(t *testing.T) {
	for _, name := range []string{"mnist", "mobilenet", "textcnn-69", "lstm-2365", "bert-small", "resnet-20", "ssd"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := zoo.Make(name, 1)
			if err != nil {
				t.Fatal(err)
			}
			newPartition(t, m).compare(t)
		})
	}
}

// Groups between several tensors answer as the whole model does, too.
func TestSeparateGroupsAnswerAsTheWhole(t *testing.T) {
	for _, name := range []string{"textcnn-69", "bert-small", "resnet-20", "ssd"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := zoo.Make(name, 1)
			if err != nil {
				t.Fatal(err)
			}
			p := newPartition(t, m)
			p.model = p.model.Separate(8)
			for _, size := range []int{1, 4} {
				p.chain(t, size)
			}
		})
	}
}

// The graph that the engine runs, with its fused operators and images in blocks of channels,
// can be divided between several tensors, too, and its groups keep every bit.
func TestGroupsOfTheOptimisedGraph(t *testing.T) {
	for _, name := range []string{"mobilenet", "resnet-20", "ssd"} {
		t.Run(name, func(t *testing.T) {
			plain, err := formOf(Options{Model: zooFile(t, name)})
			if err != nil {
				t.Fatal(err)
			}
			optimised := filepath.Join(t.TempDir(), "model.onnx")
			if err := saveOptimised(plain, optimised, formats[FormatPacked].save[:2]); err != nil {
				t.Fatal(err)
			}
			p := readPartition(t, optimised)
			p.model = p.model.Separate(8)
			for _, size := range []int{1, 5} {
				p.chain(t, size)
			}
			t.Logf("%d blocks", len(p.model.Layers()))
		})
	}
}

// chain runs the model in uncut groups of that many layers.
func (p *partition) chain(t *testing.T, size int) {
	t.Helper()
	have := p.samples(t)
	want := p.run(t, p.file, have)
	layers := len(p.model.Layers())
	for first := 0; first < layers; first += size {
		g, err := p.model.Group(first, min(first+size, layers))
		if err != nil {
			t.Fatal(err)
		}
		for name, x := range p.parts(t, g, g.Whole(), have) {
			have[name] = x
		}
	}
	for name, x := range want {
		p.same(t, fmt.Sprintf("%s in groups of %d layers", name, size), have[name], x)
	}
}

// samples returns inputs for the whole model.
func (p *partition) samples(t *testing.T) map[string]tensor.Tensor {
	t.Helper()
	samples, err := p.whole.SampleInputs(2, 1)
	if err != nil {
		t.Fatal(err)
	}
	inputs := make(map[string]tensor.Tensor)
	for _, in := range samples {
		inputs[in.Name] = in
	}
	return inputs
}

// partition runs a model in parts.
type partition struct {
	whole *model.Model
	// file has the whole model.
	file   string
	model  *cut.Model
	source cut.Source
	dir    string
	tried  int
	// inexact of the cuts differ in their last bits; excused do not, although another kernel
	// computes them.
	inexact, excused int
}

// newPartition divides a made model. It takes the weights from a file: the model would make them again
// for each part.
func newPartition(t *testing.T, made *model.Model) *partition {
	t.Helper()
	file := filepath.Join(t.TempDir(), "whole.onnx")
	if err := made.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return readPartition(t, file)
}

// readPartition divides the model in a file.
func readPartition(t *testing.T, file string) *partition {
	t.Helper()
	m, err := model.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	weights := m.OpenWeights()
	t.Cleanup(func() { weights.Close() })
	return &partition{whole: m, file: file, model: c, source: weights, dir: t.TempDir()}
}

// compare runs the model group by group. Each group's answer is that of its parts.
func (p *partition) compare(t *testing.T) {
	inputs := p.samples(t)
	want := p.run(t, p.file, inputs)
	layers := len(p.model.Layers())
	have := make(map[string]tensor.Tensor)
	for name, x := range inputs {
		have[name] = x
	}
	for first := range layers {
		for _, size := range []int{4, 1} {
			if first+size > layers || first%size != 0 {
				continue
			}
			out := p.group(t, first, first+size, have)
			if size == 1 {
				for name, x := range out {
					have[name] = x
				}
			}
		}
	}
	for name, x := range want {
		p.same(t, "the whole model's "+name, have[name], x)
	}
	if p.excused > 0 {
		t.Errorf("%d cuts are exact although another kernel computes them", p.excused)
	}
	if p.tried < layers {
		t.Errorf("%d cuts of %d layers were tried", p.tried, layers)
	}
	t.Logf("%d layers, %d cuts, %d differ in their last bits", layers, p.tried, p.inexact)
}

// group runs a group whole and in all cuts, and returns its outputs.
func (p *partition) group(t *testing.T, first, end int, have map[string]tensor.Tensor) map[string]tensor.Tensor {
	t.Helper()
	g, err := p.model.Group(first, end)
	if err != nil {
		t.Fatal(err)
	}
	want := p.parts(t, g, g.Whole(), have)
	cuts := []func() (cut.Cut, error){
		func() (cut.Cut, error) { return g.Grid(2, 1) },
		func() (cut.Cut, error) { return g.Grid(1, 3) },
		func() (cut.Cut, error) { return g.Grid(2, 2) },
		func() (cut.Cut, error) { return g.Channels(2) },
		func() (cut.Cut, error) { return g.Channels(3) },
		func() (cut.Cut, error) { return g.Along(1, 3, 1) },
	}
	for _, find := range cuts {
		c, err := find()
		if err != nil {
			continue
		}
		got := p.parts(t, g, c, have)
		other := p.otherKernel(t, g, c)
		for name, x := range got {
			p.compareResult(t, fmt.Sprintf("layers %d to %d, %s", first, end-1, c.Name), other, x, want[name])
		}
		if got != nil {
			p.tried++
		}
	}
	return want
}

// compareResult checks that parts gave the whole group's answer, to the last bit unless a
// convolution adds up in another order.
func (p *partition) compareResult(t *testing.T, what, other string, got, want tensor.Tensor) {
	t.Helper()
	if other == "" {
		p.same(t, what, got, want)
	} else {
		p.near(t, what+", for "+other, got, want)
	}
}

// otherKernel names a convolution that ONNX Runtime sums up in another order in a part than
// in the whole group, "" if there is none. Its matrix product (MLAS) adds up the K products
// of an output in blocks, whose length depends on the number N of positions: 128, and more
// where N is at most 64 and below K. The sums of blocks are rounded, so another length gives
// other last bits. And it has kernels of their own for a
// single filter and for a single position.
func (p *partition) otherKernel(t *testing.T, g *cut.Group, c cut.Cut) string {
	t.Helper()
	wholes, err := g.Cut(g.Whole())
	if err != nil {
		t.Fatal(err)
	}
	want := p.kernels(t, wholes[0])
	parts, err := g.Cut(c)
	if err != nil {
		return ""
	}
	for _, part := range parts {
		for name, b := range p.kernels(t, part) {
			if b != want[name] {
				return fmt.Sprintf("%s (%+v in the part, %+v in the whole)", name, b, want[name])
			}
		}
	}
	return ""
}

// kernel is how a convolution adds up: in blocks of what length, and with which kernel.
type kernel struct {
	block               int64
	oneFilter, onePlace bool
}

func (p *partition) kernels(t *testing.T, part *cut.Part) map[string]kernel {
	t.Helper()
	m, _, err := part.Model()
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph(1)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]kernel)
	for _, o := range g.Operators {
		if o.Type != "Conv" {
			continue
		}
		n, k := int64(1), int64(1)
		for _, d := range o.Outputs[0].Shape[2:] {
			n *= d
		}
		for _, d := range o.Inputs[1].Shape[1:] {
			k *= d
		}
		length := int64(128)
		for wide := int64(128); n < k && wide > 16 && wide/2 >= n; wide /= 2 {
			length *= 2
		}
		groups := o.Inputs[0].Shape[1] / o.Inputs[1].Shape[1]
		all[o.Name] = kernel{min(length, k), o.Inputs[1].Shape[0] == groups, n == 1}
	}
	return all
}

// near checks that two results differ by no more than 1e-5 of the largest element.
func (p *partition) near(t *testing.T, what string, got, want tensor.Tensor) {
	t.Helper()
	largest, most := 0.0, 0.0
	for i := 0; i+4 <= len(got.Data); i += 4 {
		a, b := float64(float32At(got.Data, i)), float64(float32At(want.Data, i))
		largest, most = max(largest, math.Abs(b)), max(most, math.Abs(a-b))
	}
	if !(most <= 1e-5*largest) {
		t.Errorf("%s: off by %g, of %g at most", what, most, largest)
	}
	if most > 0 {
		p.inexact++
	} else {
		p.excused++
	}
}

// parts runs the parts of a cut and puts their outputs together, nil if the group cannot be
// cut so.
func (p *partition) parts(t *testing.T, g *cut.Group, c cut.Cut, have map[string]tensor.Tensor) map[string]tensor.Tensor {
	t.Helper()
	parts, err := g.Cut(c)
	if err != nil {
		t.Logf("%s: %v", c.Name, err)
		return nil
	}
	out := make(map[string]tensor.Tensor)
	for i, part := range parts {
		inputs := make(map[string]tensor.Tensor)
		for _, in := range part.Inputs() {
			x, ok := have[in.Name]
			if !ok {
				t.Fatalf("part %d needs %q, which no layer gives", i, in.Name)
			}
			r := in.At(x.Shape)
			data, err := cut.Take(x.Data, x.Shape, r, x.Type.Size())
			if err != nil {
				t.Fatal(err)
			}
			inputs[in.As] = tensor.Tensor{Name: in.As, Type: x.Type, Shape: r.Shape(), Data: data}
		}
		got := p.run(t, p.write(t, part), inputs)
		for _, o := range part.Outputs() {
			x := got[o.As]
			shape := o.Shape(int(x.Shape[0]))
			into, ok := out[o.Name]
			if !ok {
				n := int64(x.Type.Size())
				for _, d := range shape {
					n *= d
				}
				into = tensor.Tensor{Name: o.Name, Type: x.Type, Shape: shape, Data: make([]byte, n)}
				out[o.Name] = into
			}
			if err := cut.Put(into.Data, shape, o.At(shape), x.Type.Size(), x.Data); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

// write writes a part's model and weights.
func (p *partition) write(t *testing.T, part *cut.Part) string {
	t.Helper()
	dir, err := os.MkdirTemp(p.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	m, weights, err := part.Model()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.Create(filepath.Join(dir, cut.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "model.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(cut.WriteWeights(data, weights, p.source), data.Close(), m.Write(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// run runs a model at the extended level.
func (p *partition) run(t *testing.T, path string, inputs map[string]tensor.Tensor) map[string]tensor.Tensor {
	t.Helper()
	out, err := p.attempt(t, path, inputs)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return out
}

// attempt is run for a model that the engine may not be able to run.
func (p *partition) attempt(t *testing.T, path string, inputs map[string]tensor.Tensor) (map[string]tensor.Tensor, error) {
	t.Helper()
	f, err := formOf(Options{Model: path, Threads: 1})
	if err != nil {
		return nil, err
	}
	f.level = extended
	e, err := open(f, 1)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	rows, ordered := 0, []tensor.Tensor(nil)
	for _, in := range e.Inputs() {
		x := inputs[in.Name]
		rows = int(x.Shape[0])
		ordered = append(ordered, x)
	}
	results, err := e.Run(t.Context(), rows, ordered)
	if err != nil {
		return nil, err
	}
	out := make(map[string]tensor.Tensor)
	for _, x := range results {
		x.Data = bytes.Clone(x.Data)
		x.Shape = slices.Clone(x.Shape)
		out[x.Name] = x
	}
	return out, nil
}

func (p *partition) same(t *testing.T, what string, got, want tensor.Tensor) {
	t.Helper()
	if !slices.Equal(got.Shape, want.Shape) {
		t.Errorf("%s has shape %v, not %v", what, got.Shape, want.Shape)
		return
	}
	if bytes.Equal(got.Data, want.Data) {
		return
	}
	differ, most := 0, 0.0
	for i := 0; i+4 <= len(got.Data); i += 4 {
		a, b := float32At(got.Data, i), float32At(want.Data, i)
		if a != b {
			differ++
			most = max(most, math.Abs(float64(a-b)))
		}
	}
	t.Errorf("%s: %d of %d elements differ, by %g at most", what, differ, len(got.Data)/4, most)
}

func float32At(b []byte, i int) float32 {
	return math.Float32frombits(uint32(b[i]) | uint32(b[i+1])<<8 | uint32(b[i+2])<<16 | uint32(b[i+3])<<24)
}
