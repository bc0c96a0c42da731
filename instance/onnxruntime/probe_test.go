package onnxruntime

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// modelFile writes a model in protobuf's text form to a file.
func modelFile(t *testing.T, graph string) string {
	t.Helper()
	p := new(onnxpb.ModelProto)
	text := `ir_version: 8 opset_import { version: 17 } opset_import { domain: "ai.onnx.ml" version: 3 } graph { name: "g" ` + graph + ` }`
	if err := prototext.Unmarshal([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.onnx")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// value declares an input or output. Sizes below 0 are dynamic and have no name; a letter is
// a name.
func value(kind, name, elem string, dims ...string) string {
	s := kind + ` { name: "` + name + `" type { tensor_type { elem_type: ` + elem + ` shape {`
	for _, d := range dims {
		if d[0] >= '0' && d[0] <= '9' {
			s += ` dim { dim_value: ` + d + ` }`
		} else {
			s += ` dim { dim_param: "` + d + `" }`
		}
	}
	return s + ` } } } } `
}

const (
	float     = "1"
	half      = "10"
	int64Code = "7"
)

// weight is the matrix [4, 2] with the rows (1, 0), (0, 1), (1, 0), (0, 1).
const weight = `initializer { name: "w" data_type: 1 dims: 4 dims: 2 float_data: [1, 0, 0, 1, 1, 0, 0, 1] } `

// Each kind of model is served with its batch in front, or as a whole with a reason.
func TestAdapt(t *testing.T) {
	for _, c := range []struct {
		name, graph string
		unbatched   string // a part of the reason, "" for a model that is batched
		in, out     []int64
		outEdge     *tensor.Edge
	}{
		{"batch first", weight + `node { op_type: "MatMul" input: ["x", "w"] output: "y" }` + value("input", "x", float, "n", "4") + value("output", "y", float, "n", "2"),
			"", []int64{-1, 4}, []int64{-1, 2}, nil},
		{"fixed batch", weight + `node { op_type: "MatMul" input: ["x", "w"] output: "y" }` + value("input", "x", float, "1", "4") + value("output", "y", float, "1", "2"),
			"", []int64{-1, 4}, []int64{-1, 2}, nil},
		{"fixed batch in a Reshape", `initializer { name: "s" data_type: 7 dims: 3 int64_data: [1, 2, 2] } node { op_type: "Reshape" input: ["x", "s"] output: "y" }` +
			value("input", "x", float, "1", "4") + value("output", "y", float, "1", "2", "2"), "", []int64{-1, 4}, []int64{-1, 2, 2}, nil},
		{"rows see each other", `node { op_type: "ReduceMean" input: "x" output: "m" attribute { name: "axes" type: INTS ints: 0 } } node { op_type: "Sub" input: ["x", "m"] output: "y" }` +
			value("input", "x", float, "n", "4") + value("output", "y", float, "n", "4"), "along the batch axis", []int64{-1, -1, 4}, []int64{-1, -1, 4}, &tensor.Edge{Shape: []int64{-1, 4}, Axis: -1}},
		{"attention across rows", `node { op_type: "Transpose" input: "x" output: "t" } node { op_type: "MatMul" input: ["x", "t"] output: "a" } node { op_type: "MatMul" input: ["a", "x"] output: "y" }` +
			value("input", "x", float, "n", "4") + value("output", "y", float, "n", "4"), "rows see each other", []int64{-1, -1, 4}, []int64{-1, -1, 4}, &tensor.Edge{Shape: []int64{-1, 4}, Axis: -1}},
		{"real numbers that are indices", weight + `node { op_type: "Cast" input: "x" output: "i" attribute { name: "to" type: INT i: 7 } } node { op_type: "Gather" input: ["w", "i"] output: "y" }` +
			value("input", "x", float, "n", "3") + value("output", "y", float, "n", "3", "2"), "", []int64{-1, 3}, []int64{-1, 3, 2}, nil},
		{"negative numbers across rows", `node { op_type: "Neg" input: "x" output: "m" } node { op_type: "Relu" input: "m" output: "r" } node { op_type: "Transpose" input: "r" output: "t" } ` +
			`node { op_type: "MatMul" input: ["r", "t"] output: "a" } node { op_type: "MatMul" input: ["a", "r"] output: "b" } node { op_type: "Add" input: ["b", "x"] output: "y" }` +
			value("input", "x", float, "n", "4") + value("output", "y", float, "n", "4"), "rows see each other", []int64{-1, -1, 4}, []int64{-1, -1, 4}, &tensor.Edge{Shape: []int64{-1, 4}, Axis: -1}},
		{"scalar", `node { op_type: "Mul" input: ["x", "k"] output: "y" }` + value("input", "x", float, "n", "4") + value("input", "k", float) + value("output", "y", float, "n", "4"),
			`input "k" has no dimensions`, []int64{-1, -1, 4}, []int64{-1, -1, 4}, &tensor.Edge{Shape: []int64{-1, 4}, Axis: -1}},
		{"output on axis 1", `node { op_type: "Transpose" input: "x" output: "y" }` + value("input", "x", float, "n", "4") + value("output", "y", float, "4", "n"),
			"", []int64{-1, 4}, []int64{-1, 4}, &tensor.Edge{Shape: []int64{4, -1}, Axis: 1}},
		{"wrong hint", `node { op_type: "ArgMax" input: "x" output: "y" attribute { name: "axis" type: INT i: 1 } attribute { name: "keepdims" type: INT i: 0 } }` +
			value("input", "x", float, "n", "4") + value("output", "y", int64Code, "1"), "", []int64{-1, 4}, []int64{-1}, nil},
		{"rows that depend on the data", `node { op_type: "NonZero" input: "x" output: "t" } node { op_type: "Transpose" input: "t" output: "y" }` +
			value("input", "x", float, "n", "4") + value("output", "y", int64Code, "k", "2"), "cannot be split", []int64{-1, -1, 4}, []int64{-1, -1, 2}, &tensor.Edge{Shape: []int64{-1, 2}, Axis: -1}},
		{"output of rank 0", `node { op_type: "ReduceSum" input: "x" output: "y" attribute { name: "keepdims" type: INT i: 0 } }` + value("input", "x", float, "n", "4") + value("output", "y", float),
			"along the batch axis", []int64{-1, -1, 4}, []int64{-1}, &tensor.Edge{Shape: []int64{}, Axis: -1}},
		{"float16 of free length", `node { op_type: "Add" input: ["x", "x"] output: "y" }` + value("input", "x", half, "n", "s") + value("output", "y", half, "n", "s"),
			"", []int64{-1, -1}, []int64{-1, -1}, nil},
		{"stride", `initializer { name: "c" data_type: 1 dims: 4 float_data: [1, 1, 32, 32] } node { op_type: "MaxPool" input: "x" output: "p" attribute { name: "kernel_shape" type: INTS ints: [32, 32] } attribute { name: "strides" type: INTS ints: [32, 32] } } node { op_type: "Resize" input: ["p", "", "c"] output: "u" } node { op_type: "Add" input: ["u", "x"] output: "y" }` +
			value("input", "x", float, "n", "1", "h", "w") + value("output", "y", float, "n", "1", "h", "w"), "", []int64{-1, 1, -1, -1}, []int64{-1, 1, -1, -1}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := adaptFile(modelFile(t, c.graph), PrepareOptions{}, true)
			if err != nil {
				t.Fatal(err)
			}
			s := f.signature
			if c.unbatched == "" && s.Unbatched != "" || !strings.Contains(s.Unbatched, c.unbatched) {
				t.Errorf("unbatched: %q, want %q", s.Unbatched, c.unbatched)
			}
			if !slices.Equal(s.Inputs[0].Shape, c.in) || !slices.Equal(s.Outputs[0].Shape, c.out) {
				t.Errorf("shapes %v and %v, want %v and %v", s.Inputs[0].Shape, s.Outputs[0].Shape, c.in, c.out)
			}
			switch e := s.Outputs[0].Edge; {
			case (e == nil) != (c.outEdge == nil):
				t.Errorf("edge %v, want %v", e, c.outEdge)
			case e != nil && (e.Axis != c.outEdge.Axis || !slices.Equal(e.Shape, c.outEdge.Shape)):
				t.Errorf("edge %v, want %v", *e, *c.outEdge)
			}
		})
	}
}

// A prepared model of each form computes what the file does.
func TestAdaptedRuns(t *testing.T) {
	for _, c := range []struct {
		name, graph string
		inputs      []tensor.Tensor
		want        []float32
		shape       []int64
	}{
		{"fixed batch, three rows", weight + `node { op_type: "MatMul" input: ["x", "w"] output: "y" }` + value("input", "x", float, "1", "4") + value("output", "y", float, "1", "2"),
			[]tensor.Tensor{tensorOf([]int64{3, 4}, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1)}, []float32{4, 6, 12, 14, 0, 1}, []int64{3, 2}},
		{"scalar", `node { op_type: "Mul" input: ["x", "k"] output: "y" }` + value("input", "x", float, "n", "4") + value("input", "k", float) + value("output", "y", float, "n", "4"),
			[]tensor.Tensor{tensorOf([]int64{1, 1, 4}, 1, 2, 3, 4), tensorOf([]int64{1}, 3)}, []float32{3, 6, 9, 12}, []int64{1, 1, 4}},
		{"two rows that see each other", `node { op_type: "ReduceMean" input: "x" output: "m" attribute { name: "axes" type: INTS ints: 0 } } node { op_type: "Sub" input: ["x", "m"] output: "y" }` +
			value("input", "x", float, "n", "1") + value("output", "y", float, "n", "1"),
			[]tensor.Tensor{tensorOf([]int64{1, 2, 1}, 1, 3)}, []float32{-1, 1}, []int64{1, 2, 1}},
		{"state on axis 1", `node { op_type: "Add" input: ["x", "x"] output: "y" } node { op_type: "Identity" input: "s" output: "z" }` +
			value("input", "x", float, "n", "1") + value("input", "s", float, "2", "n", "1") + value("output", "z", float, "2", "n", "1") + value("output", "y", float, "n", "1"),
			[]tensor.Tensor{tensorOf([]int64{2, 1}, 1, 2), tensorOf([]int64{2, 2, 1}, 1, 2, 3, 4)}, []float32{1, 2, 3, 4}, []int64{2, 2, 1}},
		{"an output that is an input", `node { op_type: "Neg" input: "x" output: "y" }` + value("input", "x", float, "n", "2") + value("output", "x", float, "n", "2") + value("output", "y", float, "n", "2"),
			[]tensor.Tensor{tensorOf([]int64{2, 2}, 1, 2, 3, 4)}, []float32{1, 2, 3, 4}, []int64{2, 2}},
		{"the same of a whole request", `node { op_type: "Mul" input: ["x", "k"] output: "y" }` + value("input", "x", float, "n", "2") + value("input", "k", float) +
			value("output", "x", float, "n", "2") + value("output", "y", float, "n", "2"),
			[]tensor.Tensor{tensorOf([]int64{1, 1, 2}, 1, 2), tensorOf([]int64{1}, 3)}, []float32{1, 2}, []int64{1, 1, 2}},
		{"a rank that no file declares", `node { op_type: "Squeeze" input: "x" output: "y" }` + value("input", "x", float, "n") + `output { name: "y" type { tensor_type { elem_type: 1 } } }`,
			[]tensor.Tensor{tensorOf([]int64{1, 3}, 1, 2, 3)}, []float32{1, 2, 3}, []int64{1, 3}},
		{"a denormal number above zero", `initializer { name: "zero" data_type: 1 float_data: 0 } node { op_type: "Greater" input: ["x", "zero"] output: "b" } ` +
			`node { op_type: "Cast" input: "b" output: "y" attribute { name: "to" type: INT i: 1 } }` + value("input", "x", float, "n", "2") + value("output", "y", float, "n", "2"),
			[]tensor.Tensor{tensorOf([]int64{1, 2}, 1e-40, 0)}, []float32{1, 0}, []int64{1, 2}},
		{"a past of no length", `node { op_type: "Concat" input: ["past", "x"] output: "y" attribute { name: "axis" type: INT i: 1 } }` +
			value("input", "past", float, "n", "p") + value("input", "x", float, "n", "2") + value("output", "y", float, "n", "all"),
			[]tensor.Tensor{tensorOf([]int64{1, 0}), tensorOf([]int64{1, 2}, 1, 2)}, []float32{1, 2}, []int64{1, 2}},
		{"a size that is a real number", `initializer { name: "v" data_type: 1 dims: 2 float_data: [0, 1] } node { op_type: "OneHot" input: ["x", "k", "v"] output: "y" }` +
			value("input", "x", float, "1", "1") + value("input", "k", float, "1") + value("output", "y", float, "1", "1", "m"),
			[]tensor.Tensor{tensorOf([]int64{1, 1, 1}, 1), tensorOf([]int64{1, 1}, 3)}, []float32{0, 1, 0}, []int64{1, 1, 1, 3}},
		{"an index into one element", `node { op_type: "Gather" input: ["x", "i"] output: "y" }` + value("input", "x", float, "1", "2") + value("input", "i", int64Code, "2") + value("output", "y", float, "2", "2"),
			[]tensor.Tensor{tensorOf([]int64{1, 1, 2}, 1, 2), {Type: tensor.Int64, Shape: []int64{1, 2}, Data: make([]byte, 16)}}, []float32{1, 2, 1, 2}, []int64{1, 2, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Prepare(modelFile(t, c.graph), t.TempDir(), PrepareOptions{})
			if err != nil {
				t.Fatal(err)
			}
			e, err := Open(Options{Prepared: p.Dir, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			out, err := e.Run(context.Background(), int(c.inputs[0].Shape[0]), c.inputs)
			if err != nil {
				t.Fatal(err)
			}
			if got := numbersOf(out[0]); !slices.Equal(got, c.want) || !slices.Equal(out[0].Shape, c.shape) {
				t.Errorf("%v %v, want %v %v", out[0].Shape, got, c.shape, c.want)
			}
		})
	}
}

// A model whose free dimensions no size fits is refused with the way out, and served with the
// sizes that a person names.
func TestNoSizes(t *testing.T) {
	path := modelFile(t, `initializer { name: "s" data_type: 7 dims: 2 int64_data: [-1, 77] } node { op_type: "Reshape" input: ["x", "s"] output: "y" }`+
		value("input", "x", float, "n", "k")+value("output", "y", float, "n", "77"))
	_, err := Prepare(path, t.TempDir(), PrepareOptions{})
	if err == nil || !strings.Contains(err.Error(), NoSizes) || !strings.Contains(err.Error(), `com.openfaas.infer.shapes, for example "x:1x128"`) {
		t.Errorf("%v", err)
	}
	p, err := Prepare(path, t.TempDir(), PrepareOptions{Shapes: tensor.Shapes{"x": {1, 77}}})
	if err != nil || p.Unbatched != "" || p.Shapes.String() != "x:1x77" {
		t.Errorf("%+v, %v", p, err)
	}
}

// A refusal of the engine names the way out.
func TestRefusals(t *testing.T) {
	for graph, want := range map[string]string{
		`node { op_type: "Add" input: ["x", "x"] output: "y" }` + value("input", "x", "16", "n", "2") + value("output", "y", "16", "n", "2"): "for CPUs (in float32",
		`node { op_type: "Nothing" input: "x" output: "y" }` + value("input", "x", float, "n", "2") + value("output", "y", float, "n", "2"):  "or use a handler",
		`initializer { name: "s" data_type: 7 dims: 2 int64_data: [1, 2] } node { op_type: "SplitToSequence" input: ["x", "s"] output: "y" }` + value("input", "x", float, "3", "2") +
			`output { name: "y" type { sequence_type { elem_type { tensor_type { elem_type: 1 } } } } }`: `output "y" is a sequence of tensors of several shapes`,
	} {
		if _, err := Prepare(modelFile(t, graph), t.TempDir(), PrepareOptions{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", graph, err, want)
		}
	}
}

func tensorOf(shape []int64, values ...float32) tensor.Tensor {
	t := tensor.Tensor{Type: tensor.FP32, Shape: shape}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

func numbersOf(t tensor.Tensor) (out []float32) {
	for data := t.Data; len(data) >= 4; data = data[4:] {
		out = append(out, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	return out
}

// An output whose file fixes its rows to one is computed for several.
func TestWrongHint(t *testing.T) {
	p, err := Prepare(modelFile(t, `node { op_type: "ArgMax" input: "x" output: "y" attribute { name: "axis" type: INT i: 1 } attribute { name: "keepdims" type: INT i: 0 } }`+
		value("input", "x", float, "n", "2")+value("output", "y", int64Code, "1")), t.TempDir(), PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := mustOpen(t, Options{Prepared: p.Dir})
	out, err := e.Run(t.Context(), 3, []tensor.Tensor{tensorOf([]int64{3, 2}, 0, 1, 1, 0, 0, 1)})
	if err != nil || !slices.Equal(out[0].Shape, []int64{3}) || out[0].Data[0] != 1 || out[0].Data[8] != 0 || out[0].Data[16] != 1 {
		t.Errorf("%+v, %v", out, err)
	}
}

// An adapted model of which only the plain form can be used finds its weights, also if its own
// file has the name of the graph that is written beside them.
func TestPlainFormOfAnAdaptedModel(t *testing.T) {
	t.Setenv(dieEnv, "packed,ort")
	var b strings.Builder
	for i := range 64 * 64 {
		fmt.Fprintf(&b, " float_data: %d", i%3)
	}
	path := modelFile(t, `initializer { name: "w" data_type: 1 dims: 64 dims: 64`+b.String()+` } node { op_type: "MatMul" input: ["x", "w"] output: "y" }`+
		value("input", "x", float, "1", "64")+value("output", "y", float, "1", "64"))
	p, err := Prepare(path, t.TempDir(), PrepareOptions{})
	if err != nil || p.Format != FormatPlain || len(p.Refused) != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	e := mustOpen(t, Options{Prepared: p.Dir})
	x := tensorOf([]int64{2, 64}, append(make([]float32, 127), 1)...)
	out, err := e.Run(t.Context(), 2, []tensor.Tensor{x})
	if got := numbersOf(out[0]); err != nil || got[64] != float32((63*64)%3) || got[65] != float32((63*64+1)%3) || got[0] != 0 {
		t.Errorf("%v, %v", got[60:68], err)
	}
}
