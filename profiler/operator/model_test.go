package operator_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

func alone(t testing.TB, o *operator.Operator) *model.Model {
	t.Helper()
	m, err := o.Model()
	if err != nil {
		t.Fatalf("%s: %v", o.Key(), err)
	}
	return m
}

func samples(t testing.TB, o *operator.Operator, batch int) []tensor.Tensor {
	t.Helper()
	in, err := o.Samples(batch, 1)
	if err != nil {
		t.Fatalf("%s: %v", o.Key(), err)
	}
	return in
}

// An operator's samples fit its model's inputs, its results the model's outputs.
func TestSamplesFitModels(t *testing.T) {
	models := []*model.Model{ofZoo(t, "mnist"), ofZoo(t, "textcnn"), ofZoo(t, "lstm"), ofZoo(t, "dssm")}
	for _, c := range cases(t) {
		models = append(models, parse(t, c[1], "17"))
	}
	for _, m := range models {
		for _, o := range read(t, m).Operators {
			m := alone(t, o)
			inputs, outputs := m.Inputs(), m.Outputs()
			for _, b := range []int{1, 3} {
				in := samples(t, o, b)
				if len(in) != len(inputs) {
					t.Fatalf("%s: %d samples for %d inputs", o.Key(), len(in), len(inputs))
				}
				for i, x := range in {
					if err := fits(x, inputs[i]); err != nil {
						t.Errorf("%s at a batch of %d: %v", o.Key(), b, err)
					}
				}
				results := o.Results(b)
				if len(results) != len(outputs) {
					t.Fatalf("%s: %d results, %d outputs", o.Key(), len(results), len(outputs))
				}
				for i, x := range results {
					n, _ := tensor.Elements(x.Shape)
					x.Data = make([]byte, n*int64(x.Type.Size()))
					if err := fits(x, outputs[i]); err != nil {
						t.Errorf("%s at a batch of %d: %v", o.Key(), b, err)
					}
				}
			}
		}
	}
}

func fits(x tensor.Tensor, info tensor.Info) error {
	n, err := tensor.Elements(x.Shape)
	if err != nil || int64(len(x.Data)) != n*int64(x.Type.Size()) || n == 0 {
		return fmt.Errorf("%s %v has %d bytes, %w", x.Name, x.Shape, len(x.Data), err)
	}
	for i, d := range info.Shape {
		if d >= 0 && x.Shape[i] != d {
			return fmt.Errorf("%s %v for %v", x.Name, x.Shape, info.Shape)
		}
	}
	if x.Name != info.Name || x.Type != info.Type || len(x.Shape) != len(info.Shape) {
		return fmt.Errorf("%+v for %+v", x, info)
	}
	return nil
}

// The model of one operator contains the same operator if the inputs' first dimension is
// the batch.
func TestModelHoldsTheOperator(t *testing.T) {
	for _, c := range cases(t) {
		for _, o := range read(t, parse(t, c[1], "17")).Operators {
			m := alone(t, o)
			if slices.ContainsFunc(m.Inputs(), func(i tensor.Info) bool { return i.Shape[0] >= 0 }) || strings.Contains(o.Key(), "16b") {
				continue
			}
			if got := read(t, m).Operators[0].Key(); got != o.Key() {
				t.Errorf("%s holds %s", o.Key(), got)
			}
		}
	}
}

// A view would be copied if its output were the model's.
func TestModelOfView(t *testing.T) {
	o := read(t, parse(t, `node { op_type: "Flatten" input: "x" output: "g" } node { op_type: "Relu" input: "g" output: "y" }`, "17")).Operators[0]
	m := alone(t, o)
	if nodes := m.Proto().GetGraph().GetNode(); !o.View || len(nodes) != 2 || nodes[1].GetOpType() != "Shape" || nodes[1].GetInput()[0] != nodes[0].GetOutput()[0] {
		t.Errorf("%s is measured by %v", o.Key(), nodes)
	}
	if out := m.Outputs(); len(out) != 1 || out[0].Type != tensor.Int64 || !slices.Equal(out[0].Shape, []int64{2}) {
		t.Errorf("outputs %v", out)
	}
	if f := o.Features(8); f != (operator.Features{}) {
		t.Errorf("a view costs %+v", f)
	}
}

// Bindings take no scalars. Scalar inputs become constants, or vectors if they grow;
// scalar outputs stay inside.
func TestModelWithoutScalars(t *testing.T) {
	g := read(t, parse(t, `
		node { op_type: "DynamicQuantizeLinear" input: "x" output: "q" output: "scale" output: "zero" }
		node { op_type: "Mul" input: "scale" input: "c" output: "twice" }
		node { op_type: "DequantizeLinear" input: "q" input: "twice" input: "zero" output: "v" }
		node { op_type: "Size" input: "f" output: "n" }
		node { op_type: "Constant" output: "k" attribute { name: "value_int" i: 8 type: INT } }
		node { op_type: "Div" input: "n" input: "k" output: "rows" }
		node { op_type: "Constant" output: "one" attribute { name: "value_int" i: 1 type: INT } }
		node { op_type: "Constant" output: "none" attribute { name: "value_int" i: 0 type: INT } }
		node { op_type: "Range" input: "none" input: "rows" input: "one" output: "y" }`, "17"))
	for _, o := range g.Operators {
		m := alone(t, o)
		for _, info := range append(m.Inputs(), m.Outputs()...) {
			if len(info.Shape) == 0 {
				t.Errorf("%s: %s is a scalar", o.Key(), info.Name)
			}
		}
		if strings.HasPrefix(o.Key(), "Range") {
			if in := samples(t, o, 5); len(in) != 1 || binary.LittleEndian.Uint64(in[0].Data) != 5 || !slices.Equal(in[0].Shape, []int64{1}) {
				t.Errorf("%s takes %v", o.Key(), in)
			}
		}
	}
}

// Weights are the same each time and scaled to their number. None is zero or denormal.
func TestWeights(t *testing.T) {
	o := read(t, ofZoo(t, "dssm")).Operators[0] // [2365, 1024] and a bias
	m, again := alone(t, o).Proto(), alone(t, o).Proto()
	if !proto.Equal(m, again) {
		t.Error("two models of one operator differ")
	}
	sum := 0.0
	w := m.GetGraph().GetInitializer()[0].GetRawData()
	for b := w; len(b) > 0; b = b[4:] {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		if math.Abs(v) < 1e-6 || math.Abs(v) > 1 {
			t.Fatalf("weight %g", v)
		}
		sum += v * v
	}
	if variance := sum / float64(len(w)/4); math.Abs(variance*2365-1) > 0.05 {
		t.Errorf("the variance is %g, wanted 1/2365", variance)
	}
	if rows := len(w) / 2365; bytes.Equal(w[:rows], w[rows:2*rows]) {
		t.Error("two rows are equal")
	}
}

func TestSampleValues(t *testing.T) {
	for _, c := range []struct {
		name, nodes string
		operator    int
		input       int
		low, high   float64
	}{
		{"words", `node { op_type: "Gather" input: "w" input: "i" output: "y" }`, 0, 0, 0, 7},
		{"logarithms", `node { op_type: "Log" input: "x" output: "y" }`, 0, 0, 0.5, 1.5},
		{"divisors", `node { op_type: "Div" input: "f" input: "f" output: "z" } node { op_type: "Relu" input: "z" output: "r" } node { op_type: "Div" input: "f" input: "r" output: "y" }`, 2, 1, 0.5, 1.5},
		{"angles", `node { op_type: "Acos" input: "x" output: "y" }`, 0, 0, -0.99, 0.99},
		{"conditions", `node { op_type: "Cast" input: "f" output: "k" attribute { name: "to" i: 9 type: INT } } node { op_type: "Where" input: "k" input: "f" input: "c" output: "y" }`, 1, 0, 0, 1},
		{"quantised", `node { op_type: "DynamicQuantizeLinear" input: "x" output: "q" output: "s" output: "z" } node { op_type: "DequantizeLinear" input: "q" input: "s" input: "z" output: "y" }`, 1, 0, 28, 228},
		{"anything", `node { op_type: "Softmax" input: "x" output: "y" }`, 0, 0, -6, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := read(t, parse(t, c.nodes, "17")).Operators[c.operator]
			x := samples(t, o, 100)[c.input]
			low, high := math.Inf(1), math.Inf(-1)
			for b := x.Data; len(b) > 0; b = b[x.Type.Size():] {
				v := number(x.Type, b)
				low, high = min(low, v), max(high, v)
			}
			if low < c.low || high > c.high || low == high {
				t.Errorf("%s: from %g to %g", o.Key(), low, high)
			}
		})
	}
}

func number(t tensor.Type, b []byte) float64 {
	switch t {
	case tensor.FP32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case tensor.Int64:
		return float64(int64(binary.LittleEndian.Uint64(b)))
	}
	return float64(b[0])
}

// The values of an input depend only on the seed.
func TestSamplesRepeat(t *testing.T) {
	o := read(t, parse(t, `node { op_type: "Softmax" input: "x" output: "y" }`, "17")).Operators[0]
	a, _ := o.Samples(4, 1)
	b, _ := o.Samples(4, 1)
	c, _ := o.Samples(4, 2)
	if !reflect.DeepEqual(a, b) || reflect.DeepEqual(a, c) {
		t.Error("samples are not those of their seed")
	}
	for _, batch := range []int{0, -1, model.MaxBatch + 1} {
		if _, err := o.Samples(batch, 1); err == nil {
			t.Errorf("a batch of %d was taken", batch)
		}
	}
}

func TestModelErrors(t *testing.T) {
	huge := operator.Operand{Type: tensor.FP32, Shape: []operator.Dim{{Fixed: 1 << 20}, {Fixed: 1 << 10}}, Role: operator.Weight}
	rows := operator.Operand{Type: tensor.FP32, Shape: []operator.Dim{{PerRow: 1}}}
	strange := operator.Operand{Shape: []operator.Dim{{PerRow: 1}}}
	for _, c := range []struct {
		words string
		o     operator.Operator
	}{
		{"takes more than 1024 MiB", operator.Operator{Type: "Relu", Inputs: []operator.Operand{huge}, Outputs: []operator.Operand{rows}}},
		{"input 0 of Relu", operator.Operator{Type: "Relu", Inputs: []operator.Operand{strange}, Outputs: []operator.Operand{rows}}},
		{"output 0 of Cast", operator.Operator{Type: "Cast", Inputs: []operator.Operand{rows}, Outputs: []operator.Operand{strange}}},
		{"domain com.example", operator.Operator{Type: "com.example.Sorcery", Domain: "com.example", Unknown: true, Inputs: []operator.Operand{rows}, Outputs: []operator.Operand{rows}}},
	} {
		if _, err := c.o.Model(); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("got %v, want %q", err, c.words)
		}
	}
	big := operator.Operator{Type: "Relu", Inputs: []operator.Operand{{Type: tensor.FP32, Shape: []operator.Dim{{PerRow: 1}, {Fixed: 1 << 20}}}}}
	if _, err := big.Samples(1<<10, 1); err == nil || !strings.Contains(err.Error(), "takes more than") {
		t.Errorf("got %v", err)
	}
}

// FuzzRead checks that no damaged model makes the reader panic.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"mnist"} {
		p := ofZoo(f, name).Proto()
		for _, t := range p.GetGraph().GetInitializer() {
			t.RawData = nil
		}
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, nodes := range []string{
		`node { op_type: "Gather" input: "w" input: "i" output: "y" }`,
		`node { op_type: "Shape" input: "x" output: "s" } node { op_type: "Reshape" input: "x" input: "s" output: "y" }`,
		`node { op_type: "Identity" output: "" } node { op_type: "GatherND" input: "x" input: "i" output: "y" }`,
	} {
		b, err := proto.Marshal(parse(f, nodes, "17").Proto())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := model.Read(b)
		if err != nil {
			return
		}
		g, err := operator.Read(m)
		if err != nil {
			return
		}
		g.ActivationBytes(3)
		for _, o := range g.Operators {
			if o.Key() == "" || o.Family() == "" {
				t.Errorf("%+v has no name", o)
			}
			const small = 1 << 16
			if f := o.Features(3); f.InBytes >= 0 && f.InBytes < small && f.WeightBytes >= 0 && f.WeightBytes < small {
				o.Samples(3, 1)
				o.Model()
			}
		}
	})
}

// A model of 500 operators.
func BenchmarkRead(b *testing.B) {
	var nodes strings.Builder
	last := "x"
	for i := range 100 {
		for _, n := range []string{
			`op_type: "Transpose" input: "%s" output: "%s" attribute { name: "perm" ints: [0, 2, 1] type: INTS }`,
			`op_type: "Transpose" input: "%s" output: "%s" attribute { name: "perm" ints: [0, 2, 1] type: INTS }`,
			`op_type: "Add" input: "c" input: "%s" output: "%s"`, `op_type: "Softmax" input: "%s" output: "%s"`, `op_type: "Relu" input: "%s" output: "%s"`,
		} {
			out := fmt.Sprintf("v%d_%d", i, nodes.Len())
			fmt.Fprintf(&nodes, "node { "+n+" }\n", last, out)
			last = out
		}
	}
	fmt.Fprintf(&nodes, `node { op_type: "Relu" input: %q output: "y" }`, last)
	m := parse(b, nodes.String(), "17")
	b.ReportAllocs()
	for b.Loop() {
		if g, err := operator.Read(m); err != nil || len(g.Nodes) != 501 {
			b.Fatal(len(g.Nodes), err)
		}
	}
}
