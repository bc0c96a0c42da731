package onnxruntime

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// writeGraph writes the model of a graph in protobuf's text form.
func writeGraph(t *testing.T, graph string) string {
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

// declare describes a tensor [n, dims...] of an ONNX element type.
func declare(kind, name string, code int, dims ...int) string {
	shape := `dim { dim_param: "n" }`
	for _, d := range dims {
		shape += fmt.Sprintf(` dim { dim_value: %d }`, d)
	}
	return fmt.Sprintf(`%s { name: %q type { tensor_type { elem_type: %d shape { %s } } } } `, kind, name, code, shape)
}

const (
	codeFloat    = int(onnxpb.TensorProto_FLOAT)
	codeInt64    = int(onnxpb.TensorProto_INT64)
	codeString   = int(onnxpb.TensorProto_STRING)
	codeBFloat16 = int(onnxpb.TensorProto_BFLOAT16)
)

// labelsGraph numbers the words cat and dog; any other word is -1.
var labelsGraph = `node { op_type: "LabelEncoder" domain: "ai.onnx.ml" input: "s" output: "y"
	attribute { name: "keys_strings" type: STRINGS strings: "cat" strings: "dog" }
	attribute { name: "values_int64s" type: INTS ints: 1 ints: 2 }
	attribute { name: "default_int64" type: INT i: -1 } } ` + declare("input", "s", codeString) + declare("output", "y", codeInt64)

func stringsTensor(name string, shape []int64, elements ...string) tensor.Tensor {
	var data []byte
	for _, s := range elements {
		data = tensor.AppendString(data, s)
	}
	return tensor.Tensor{Name: name, Type: tensor.Bytes, Shape: shape, Data: data}
}

func TestStringsIn(t *testing.T) {
	path := writeGraph(t, labelsGraph)
	prepared, err := Prepare(path, t.TempDir(), PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"plain": {Model: path, Threads: 1}, "prepared": {Prepared: prepared.Dir, Threads: 1}} {
		e := mustOpen(t, o)
		if in := e.Inputs()[0]; in.Type != tensor.Bytes {
			t.Fatalf("%s: the input is %s", name, in.Type)
		}
		out, err := e.Run(t.Context(), 4, []tensor.Tensor{stringsTensor("s", []int64{4}, "dog", "", "cat", "\xff\xfe")})
		if err != nil {
			t.Fatal(err)
		}
		want := []float64{2, -1, 1, -1}
		for i := range want {
			if got := tensor.Int64.Number(out[0].Data[8*i:]); got != want[i] {
				t.Errorf("%s: row %d is %g, want %g", name, i, got, want[i])
			}
		}
	}
}

func TestStringsOut(t *testing.T) {
	e := mustOpen(t, Options{Model: writeGraph(t, `node { op_type: "Identity" input: "s" output: "y" } `+
		declare("input", "s", codeString, 2)+declare("output", "y", codeString, 2)), Threads: 1})
	const rows = 50_000
	elements := make([]string, 0, 2*rows)
	for i := range 2 * rows {
		elements = append(elements, strings.Repeat("x", i%7)+fmt.Sprint(i))
	}
	elements[1], elements[len(elements)-1] = strings.Repeat("long ", 2<<20), ""
	in := stringsTensor("s", []int64{rows, 2}, elements...)
	out, err := e.Run(t.Context(), rows, []tensor.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Type != tensor.Bytes || !bytes.Equal(out[0].Data, in.Data) {
		t.Errorf("the output of %d bytes is not the input of %d bytes", len(out[0].Data), len(in.Data))
	}
	var caused *InputError
	_, err = e.Run(t.Context(), 1, []tensor.Tensor{stringsTensor("s", []int64{1, 2}, "a", "b\x00c")})
	if !errors.As(err, &caused) || caused.HTTPStatus() != http.StatusBadRequest || !strings.Contains(err.Error(), "element 1 has a zero byte") {
		t.Errorf("a zero byte: %v", err)
	}
	for _, data := range [][]byte{nil, {1, 0, 0}, {9, 0, 0, 0, 'a'}, stringsTensor("", nil, "a", "b", "c").Data} {
		if _, err := e.Run(t.Context(), 1, []tensor.Tensor{{Name: "s", Type: tensor.Bytes, Shape: []int64{1, 2}, Data: data}}); err == nil {
			t.Errorf("two elements of %v were run", data)
		}
	}
}

// Text is lowered on a machine without the locale en_US, which containers lack.
func TestCapitals(t *testing.T) {
	e := mustOpen(t, Options{Model: writeGraph(t, `node { op_type: "StringNormalizer" input: "s" output: "y" attribute { name: "case_change_action" type: STRING s: "LOWER" } } `+
		declare("input", "s", codeString)+declare("output", "y", codeString))})
	out, err := e.Run(t.Context(), 2, []tensor.Tensor{stringsTensor("s", []int64{2}, "CAT", "ÄRGER")})
	if err != nil {
		t.Fatal(err)
	}
	if want := stringsTensor("y", nil, "cat", "ärger").Data; !bytes.Equal(out[0].Data, want) {
		t.Errorf("%q", out[0].Data)
	}
}

func TestBFloat16(t *testing.T) {
	path := writeGraph(t, `node { op_type: "Identity" input: "x" output: "y" } `+
		declare("input", "x", codeBFloat16, 2)+declare("output", "y", codeBFloat16, 2))
	prepared, err := Prepare(path, t.TempDir(), PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e := mustOpen(t, Options{Prepared: prepared.Dir, Threads: 1})
	data := []byte{0x80, 0x3f, 0x00, 0xc0, 0x01, 0x00, 0x80, 0x7f} // 1, -2, a denormal, infinity
	out, err := e.Run(t.Context(), 2, []tensor.Tensor{{Name: "x", Type: tensor.BF16, Shape: []int64{2, 2}, Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Type != tensor.BF16 || !bytes.Equal(out[0].Data, data) {
		t.Errorf("%s %v, want %v", out[0].Type, out[0].Data, data)
	}
}

// TestInputsAtFault checks that a run that fails because of its inputs says so in plain words.
func TestInputsAtFault(t *testing.T) {
	table := `initializer { name: "table" data_type: 1 dims: 3 dims: 1 float_data: 1 float_data: 2 float_data: 3 } `
	gather := mustOpen(t, Options{Threads: 1, Model: writeGraph(t, `node { op_type: "Gather" name: "words" input: "table" input: "ids" output: "y" } `+
		table+declare("input", "ids", codeInt64, 1)+declare("output", "y", codeFloat, 1, 1))})
	add := mustOpen(t, Options{Threads: 1, Model: writeGraph(t, `node { op_type: "Add" input: "a" input: "b" output: "y" } `+
		declare("input", "a", codeFloat, -1)+declare("input", "b", codeFloat, -1)+declare("output", "y", codeFloat, -1))})
	id := func(n byte) []tensor.Tensor {
		return []tensor.Tensor{{Name: "ids", Type: tensor.Int64, Shape: []int64{1, 1}, Data: []byte{n, 0, 0, 0, 0, 0, 0, 0}}}
	}
	if _, err := gather.Run(t.Context(), 1, id(2)); err != nil {
		t.Fatal(err)
	}
	_, outside := gather.Run(t.Context(), 1, id(3))
	_, unequal := add.Run(t.Context(), 1, []tensor.Tensor{floats("a", []int64{1, 2}, 1, 2), floats("b", []int64{1, 3}, 1, 2, 3)})
	for want, err := range map[string]error{"operator Gather words says": outside, "operator Add": unequal} {
		var caused *InputError
		if !errors.As(err, &caused) || caused.HTTPStatus() != http.StatusBadRequest || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		t.Log(err)
	}
	for text, status := range map[string]int{
		"Non-zero status code returned while running MatMul node. Name:'m' Status Message: Available memory of 5 is smaller than requested bytes of 6": http.StatusRequestEntityTooLarge,
		"Non-zero status code returned while running Conv node. Name:'' Status Message: CUDA failure 700":                                              0,
		"Got invalid dimensions for input: x for the following indices index: 1 Got: 3 Expected: 4":                                                    http.StatusBadRequest,
		"the session has no model": 0,
	} {
		got := 0
		if caused := (*InputError)(nil); errors.As(runError(errors.New(text)), &caused) {
			got = caused.HTTPStatus()
		}
		if got != status {
			t.Errorf("%q has the status %d, want %d", text, got, status)
		}
	}
}
