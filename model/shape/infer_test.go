package shape

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

var line = regexp.MustCompile(`^((?:[KN]:)?\w+)\((.*)\)(.*) -> (.*)$`)

func TestInfer(t *testing.T) {
	f, err := os.Open("testdata/infer.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		text := s.Text()
		if text == "" || text[0] == '#' {
			continue
		}
		t.Run(text, func(t *testing.T) {
			m := line.FindStringSubmatch(text)
			if m == nil {
				t.Fatal("cannot read this line")
			}
			checkLine(t, m[1], m[2], m[3], m[4])
		})
	}
}

func checkLine(t *testing.T, kind, ins, attributes, want string) {
	domain := ""
	if at, rest, ok := strings.Cut(kind, ":"); ok {
		domain, kind = map[string]string{"K": "com.microsoft", "N": "com.microsoft.nchwc"}[at], rest
	}
	node := &onnxpb.NodeProto{OpType: &kind, Domain: &domain, Attribute: parseAttributes(t, attributes)}
	var inputs []Value
	for i, in := range strings.Split(ins, ", ") {
		name := fmt.Sprint("in", i)
		if in == "-" {
			name = ""
		}
		node.Input = append(node.Input, name)
		inputs = append(inputs, parseValue(t, in))
	}
	want, cost, checkCost := strings.Cut(want, " cost=")
	wanted := strings.Split(want, ", ")
	for i := range wanted {
		node.Output = append(node.Output, fmt.Sprint("out", i))
	}
	got, ok, err := Infer(node, 17, inputs)
	if !ok {
		t.Fatalf("operator %s is not known", kind)
	}
	if words, isError := strings.CutPrefix(want, "error: "); isError {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Fatalf("error %v, want one with %q", err, words)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range wanted {
		if g := printValue(got[i]); g != w {
			t.Errorf("output %d is %s, want %s", i, g, w)
		}
	}
	if checkCost && fmt.Sprint(Cost(node, inputs, got)) != cost {
		t.Errorf("cost is %d, want %s", Cost(node, inputs, got), cost)
	}
}

func parseAttributes(t *testing.T, text string) []*onnxpb.AttributeProto {
	var out []*onnxpb.AttributeProto
	for _, field := range strings.Fields(text) {
		name, value, _ := strings.Cut(field, "=")
		a := &onnxpb.AttributeProto{Name: &name}
		if value[0] == '"' {
			a.S = []byte(strings.Trim(value, `"`))
			out = append(out, a)
			continue
		}
		for _, v := range strings.Split(value, ",") {
			a.Ints = append(a.Ints, parseInt(t, v))
		}
		a.I = proto.Int64(a.Ints[0])
		out = append(out, a)
	}
	return out
}

func parseValue(t *testing.T, text string) Value {
	v := Value{Elem: onnxpb.TensorProto_FLOAT}
	switch {
	case text == "-" || text == "?":
	case text == "[]":
		v.Shape = []int64{}
	case text[0] == '[':
		v.Elem = onnxpb.TensorProto_INT64
		for _, f := range strings.Fields(strings.Trim(text, "[]")) {
			if f == "_" {
				v.Ints = append(v.Ints, Unknown)
			} else {
				v.Ints = append(v.Ints, parseInt(t, f))
			}
		}
		v.Shape = []int64{int64(len(v.Ints))}
	default:
		for _, f := range strings.Split(text, "x") {
			if f == "_" {
				f = "-1"
			}
			v.Shape = append(v.Shape, parseInt(t, f))
		}
	}
	return v
}

func parseInt(t *testing.T, s string) int64 {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// printValue is the inverse of parseValue. Contents of a scalar end with "!".
func printValue(v Value) string {
	var parts []string
	blank := func(d, no int64) string {
		if d == no {
			return "_"
		}
		return fmt.Sprint(d)
	}
	if v.Ints != nil && len(v.Shape) <= 1 {
		for _, i := range v.Ints {
			parts = append(parts, blank(i, Unknown))
		}
		return "[" + strings.Join(parts, " ") + "]" + strings.Repeat("!", 1-len(v.Shape))
	}
	for _, d := range v.Shape {
		parts = append(parts, blank(d, -1))
	}
	switch {
	case v.Shape == nil:
		return "?"
	case len(v.Shape) == 0:
		return "[]"
	}
	return strings.Join(parts, "x")
}

// Some element types do not follow from the first input.
func TestElementTypes(t *testing.T) {
	float, ids := Value{Elem: onnxpb.TensorProto_FLOAT, Shape: []int64{2, 2}}, Value{Elem: onnxpb.TensorProto_INT64, Shape: []int64{2, 2}}
	for _, test := range []struct {
		kind   string
		inputs []Value
		want   onnxpb.TensorProto_DataType
	}{
		{"Greater", []Value{float, float}, onnxpb.TensorProto_BOOL},
		{"ArgMax", []Value{float}, onnxpb.TensorProto_INT64},
		{"Shape", []Value{float}, onnxpb.TensorProto_INT64},
		{"CastLike", []Value{float, ids}, onnxpb.TensorProto_INT64},
		{"Gather", []Value{float, ids}, onnxpb.TensorProto_FLOAT},
		{"Where", []Value{{Elem: onnxpb.TensorProto_BOOL, Shape: []int64{}}, float, float}, onnxpb.TensorProto_FLOAT},
		{"MatMulInteger", []Value{{Elem: onnxpb.TensorProto_UINT8, Shape: []int64{2, 2}}, ids}, onnxpb.TensorProto_INT32},
	} {
		node := &onnxpb.NodeProto{OpType: &test.kind, Input: make([]string, len(test.inputs)), Output: []string{"out"}}
		out, _, err := Infer(node, 17, test.inputs)
		if err != nil || out[0].Elem != test.want {
			t.Errorf("%s gives %v, %v, want %v", test.kind, out[0].Elem, err, test.want)
		}
	}
}

func TestUnknownOperator(t *testing.T) {
	for _, node := range []*onnxpb.NodeProto{
		{OpType: proto.String("Sorcery"), Output: []string{"a", "b"}},
		{OpType: proto.String("Relu"), Domain: proto.String("com.example"), Output: []string{"a", "b"}},
	} {
		out, ok, err := Infer(node, 17, nil)
		if ok || err != nil || len(out) != 2 || out[0].Shape != nil || Cost(node, nil, out) != -1 {
			t.Errorf("%v: %v, %v, %v", node, out, ok, err)
		}
	}
}

// Scales of a Resize are float constants, in raw bytes or as floats.
func TestResizeScales(t *testing.T) {
	x := Value{Elem: onnxpb.TensorProto_FLOAT, Shape: []int64{1, 3, 8, 9}}
	scales := &onnxpb.TensorProto{DataType: proto.Int32(1), Dims: []int64{4}, FloatData: []float32{1, 1, 2, 1.5}}
	node := &onnxpb.NodeProto{OpType: proto.String("Resize"), Input: []string{"x", "", "scales"}, Output: []string{"y"}}
	out, _, err := Infer(node, 17, []Value{x, {}, OfTensor(scales)})
	if err != nil || printValue(out[0]) != "1x3x16x13" {
		t.Errorf("got %s, %v", printValue(out[0]), err)
	}
}

// PyTorch's exporter starts a slice of a vector at the smallest int64.
func TestSliceFromTheLeastNumber(t *testing.T) {
	vector := func(i int64) Value {
		return OfTensor(&onnxpb.TensorProto{DataType: proto.Int32(int32(int64Type)), Dims: []int64{1}, Int64Data: []int64{i}})
	}
	node := &onnxpb.NodeProto{OpType: proto.String("Slice"), Input: []string{"x", "starts", "ends"}, Output: []string{"y"}}
	x := Value{Elem: int64Type, Shape: []int64{4}, Ints: []int64{5, 6, 7, 8}}
	out, _, err := Infer(node, 18, []Value{x, vector(math.MinInt64), vector(-2)})
	if err != nil || !slices.Equal(out[0].Ints, []int64{5, 6}) {
		t.Errorf("%+v, %v", out, err)
	}
}
