package rules

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/shape"
)

// numbers reads "1,?,3": ? is what is not known, in a shape or in contents.
func numbers(t *testing.T, text string, unknown int64) []int64 {
	t.Helper()
	out := []int64{}
	for _, s := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		if s == "?" {
			out = append(out, unknown)
			continue
		}
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

// value reads "[2,?]" for a shape, "=3" for a number, "=(1,2)" for a vector, "?"
// for what is not known at all, "{3:[2]}" for a list of 3 tensors [2].
func value(t *testing.T, text string) Value {
	t.Helper()
	v := Value{Value: shape.Value{Elem: onnxpb.TensorProto_INT32}}
	switch {
	case text == "?":
	case strings.HasPrefix(text, "=("):
		v.Ints = numbers(t, strings.Trim(text, "=()"), shape.Unknown)
		v.Shape = []int64{int64(len(v.Ints))}
	case strings.HasPrefix(text, "="):
		v.Ints, v.Shape = numbers(t, text[1:], shape.Unknown), []int64{}
	case strings.HasPrefix(text, "{"):
		length, element, _ := strings.Cut(strings.Trim(text, "{}"), ":")
		v.Shape, v.List = []int64{}, &List{value(t, element).Shape, numbers(t, length, -1)[0]}
	default:
		v.Elem = onnxpb.TensorProto_FLOAT
		v.Shape = numbers(t, strings.Trim(text, "[]"), -1)
	}
	return v
}

func text(v Value) string {
	list := func(ints []int64, unknown int64) string {
		var parts []string
		for _, i := range ints {
			if i == unknown {
				parts = append(parts, "?")
			} else {
				parts = append(parts, fmt.Sprint(i))
			}
		}
		return strings.Join(parts, ",")
	}
	switch {
	case v.List != nil:
		return fmt.Sprintf("{%s:%s}", list([]int64{v.List.Length}, -1), text(Value{Value: shape.Value{Shape: v.List.Element}}))
	case v.Shape == nil:
		return "?"
	case v.Ints != nil && len(v.Shape) == 0:
		return "=" + list(v.Ints, shape.Unknown)
	case v.Ints != nil && len(v.Shape) == 1:
		return "=(" + list(v.Ints, shape.Unknown) + ")"
	}
	return "[" + list(v.Shape, -1) + "]"
}

// attributes reads "strides=1,2,2,1": numbers, truths, or words.
func attributes(t *testing.T, fields []string) map[string]*pb.AttrValue {
	t.Helper()
	all := map[string]*pb.AttrValue{}
	for _, f := range fields {
		name, v, _ := strings.Cut(f, "=")
		_, err := strconv.Atoi(v)
		switch {
		case v == "true" || v == "false":
			all[name] = &pb.AttrValue{Value: &pb.AttrValue_B{B: v == "true"}}
		case err == nil:
			all[name] = &pb.AttrValue{Value: &pb.AttrValue_I{I: numbers(t, v, 0)[0]}}
		case strings.HasPrefix(v, "DT_"):
			all[name] = &pb.AttrValue{Value: &pb.AttrValue_Type{Type: pb.DataType(pb.DataType_value[v])}}
		case strings.HasPrefix(v, "("):
			all[name] = &pb.AttrValue{Value: &pb.AttrValue_List{List: &pb.AttrValue_ListValue{I: numbers(t, strings.Trim(v, "()"), 0)}}}
		default:
			all[name] = &pb.AttrValue{Value: &pb.AttrValue_S{S: []byte(v)}}
		}
	}
	return all
}

// Each line of the file is a node, its inputs, and what comes out or why
// nothing does.
func TestInfer(t *testing.T) {
	f, err := os.Open("testdata/rules.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		node, want, ok := strings.Cut(line, " -> ")
		if !ok {
			t.Fatalf("no arrow in %q", line)
		}
		called, given, _ := strings.Cut(node, " : ")
		fields := strings.Fields(called)
		c := &Call{Op: fields[0], Attributes: attributes(t, fields[1:])}
		for _, in := range strings.Fields(given) {
			c.Inputs = append(c.Inputs, value(t, in))
		}
		seen[c.Op] = true
		out, known, err := c.Infer()
		var got []string
		for _, v := range out {
			got = append(got, text(v))
		}
		if cost := c.Cost(out); err == nil && cost != 0 {
			got = append(got, fmt.Sprintf("cost %d", cost))
		}
		switch {
		case err != nil && strings.HasPrefix(want, "error ") && strings.Contains(err.Error(), strings.TrimPrefix(want, "error ")):
		case err != nil || !known || strings.Join(got, " ") != want:
			t.Errorf("%s\n got %s, %v", line, strings.Join(got, " "), err)
		}
	}
	t.Logf("%d of %d operators", len(seen), len(rules))
}

func TestUnknownOperator(t *testing.T) {
	c := &Call{Op: "Sorcery", Types: []pb.DataType{pb.DataType_DT_FLOAT}, Attributes: map[string]*pb.AttrValue{
		"_output_shapes": {Value: &pb.AttrValue_List{List: &pb.AttrValue_ListValue{
			Shape: []*pb.TensorShapeProto{{Dim: []*pb.TensorShapeProto_Dim{{Size: -1}, {Size: 3}}}},
		}}},
	}}
	out, known, err := c.Infer()
	if err != nil || known || len(out) != 1 || text(out[0]) != "[?,3]" || out[0].Elem != onnxpb.TensorProto_FLOAT || c.Cost(out) != -1 {
		t.Errorf("%v, %v, %v", out, known, err)
	}
}

// fuzzed are attributes that rules read.
var fuzzed = []string{
	"strides", "dilations", "ksize", "explicit_paddings", "squeeze_dims", "axis", "num_split", "num", "N", "begin_mask", "end_mask",
	"ellipsis_mask", "new_axis_mask", "shrink_axis_mask", "batch_dims", "block_size", "num_elements",
}

// No node, however wrong, makes a rule panic, and what it infers keeps to what
// the other rules rely on.
func FuzzInfer(f *testing.F) {
	kinds := slices.Sorted(maps.Keys(rules))
	for i := range kinds {
		f.Add(uint8(i), []byte{3, 2, 4, 2, 8, 8, 3, 2, 4, 3, 3, 3, 4, 1, 2, 1, 1, 0, 1, 2, 2, 1}, "SAME")
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte, word string) {
		next := func() int64 {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			if b >= 250 {
				return []int64{1 << 62, -1 << 63, 1 << 40, shape.Unknown, -1, 1<<63 - 1}[b-250]
			}
			return int64(int8(b))
		}
		list := func() []int64 {
			out := []int64{}
			for range uint64(next()) % 6 {
				out = append(out, next())
			}
			return out
		}
		c := &Call{Op: kinds[int(kind)%len(kinds)], Attributes: map[string]*pb.AttrValue{}}
		for range uint64(next()) % 5 {
			v := Value{Value: shape.Value{Elem: onnxpb.TensorProto_INT32, Shape: list()}}
			switch next() % 4 {
			case 1:
				v.Ints = list()
				v.Shape = []int64{int64(len(v.Ints))}
			case 2:
				v.Shape = nil
			case 3:
				v.List = &List{list(), next()}
			}
			if err := settle(&v); err != nil {
				t.Fatal(err)
			}
			c.Inputs = append(c.Inputs, v)
		}
		for range uint64(next()) % 5 {
			name := fuzzed[uint64(next())%uint64(len(fuzzed))]
			if next()%2 == 0 {
				c.Attributes[name] = &pb.AttrValue{Value: &pb.AttrValue_I{I: next()}}
			} else {
				c.Attributes[name] = &pb.AttrValue{Value: &pb.AttrValue_List{List: &pb.AttrValue_ListValue{I: list()}}}
			}
		}
		for _, name := range []string{"padding", "equation", "data_format", "rnn_mode", "direction"} {
			c.Attributes[name] = &pb.AttrValue{Value: &pb.AttrValue_S{S: []byte(word)}}
		}
		out, _, err := c.Infer()
		if err != nil {
			return
		}
		for _, v := range out {
			if slices.ContainsFunc(v.Shape, func(d int64) bool { return d < -1 }) || v.Ints != nil && int64(len(v.Ints)) != v.Elements() ||
				v.List != nil && (v.List.Length < -1 || slices.ContainsFunc(v.List.Element, func(d int64) bool { return d < -1 })) {
				t.Errorf("%s %v gives %+v", c.Op, c.Inputs, v)
			}
		}
		if cost := c.Cost(out); cost < -1 {
			t.Errorf("%s costs %d", c.Op, cost)
		}
	})
}
