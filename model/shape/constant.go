package shape

import (
	"encoding/binary"
	"errors"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

const (
	int64Type = onnxpb.TensorProto_INT64
	boolType  = onnxpb.TensorProto_BOOL
)

// OfTensor is the value of a tensor in the model. It includes the contents of a
// small integer tensor.
func OfTensor(t *onnxpb.TensorProto) Value {
	v := Value{
		Elem: onnxpb.TensorProto_DataType(t.GetDataType()), Constant: t,
		Shape: append([]int64{}, t.GetDims()...),
	}
	if n := v.Elements(); n >= 0 && n <= maxInts {
		if ints := contents(t); int64(len(ints)) == n {
			// PyTorch's exporter writes the smallest int64 for a slice from the
			// beginning. Here that number means Unknown.
			for i, value := range ints {
				ints[i] = max(value, Unknown+1)
			}
			v.Ints = ints
		}
	}
	return v
}

// contents decodes a tensor of integers, nil for another element type.
func contents(t *onnxpb.TensorProto) []int64 {
	ints := []int64{}
	raw := t.GetRawData()
	switch onnxpb.TensorProto_DataType(t.GetDataType()) {
	case onnxpb.TensorProto_INT64:
		for b := raw; len(b) >= 8; b = b[8:] {
			ints = append(ints, int64(binary.LittleEndian.Uint64(b)))
		}
		ints = append(ints, t.GetInt64Data()...)
	case onnxpb.TensorProto_INT32:
		for b := raw; len(b) >= 4; b = b[4:] {
			ints = append(ints, int64(int32(binary.LittleEndian.Uint32(b))))
		}
		for _, i := range t.GetInt32Data() {
			ints = append(ints, int64(i))
		}
	case onnxpb.TensorProto_BOOL:
		for _, b := range raw {
			ints = append(ints, int64(b))
		}
		for _, i := range t.GetInt32Data() {
			ints = append(ints, int64(i))
		}
	default:
		return nil
	}
	return ints
}

func constant(c *call) ([]Value, error) {
	if t := c.attributes["value"].GetT(); t != nil {
		return []Value{OfTensor(t)}, nil
	}
	if a, ok := c.attributes["value_int"]; ok {
		return []Value{{Elem: int64Type, Shape: []int64{}, Ints: []int64{a.GetI()}}}, nil
	}
	if a, ok := c.attributes["value_ints"]; ok {
		return []Value{{Elem: int64Type, Shape: []int64{int64(len(a.GetInts()))}, Ints: a.GetInts()}}, nil
	}
	if _, ok := c.attributes["value_float"]; ok {
		return []Value{{Elem: onnxpb.TensorProto_FLOAT, Shape: []int64{}}}, nil
	}
	if a, ok := c.attributes["value_floats"]; ok {
		return []Value{{Elem: onnxpb.TensorProto_FLOAT, Shape: []int64{int64(len(a.GetFloats()))}}}, nil
	}
	return nil, nil
}

func constantOfShape(c *call) ([]Value, error) {
	out, value := Value{Elem: onnxpb.TensorProto_FLOAT}, Value{}
	if t := c.attributes["value"].GetT(); t != nil {
		value = OfTensor(t)
		out.Elem = value.Elem
	}
	if c.in(0).Ints == nil {
		return []Value{out}, nil
	}
	out.Shape = known(c.in(0).Ints)
	if n := product(out.Shape); len(value.Ints) == 1 && n >= 0 && n <= maxInts {
		out.Ints = repeat(value.Ints[0], n)
	}
	return []Value{out}, nil
}

func shapeOf(c *call) ([]Value, error) {
	x := c.in(0)
	if x.Shape == nil {
		return []Value{{Elem: int64Type, Shape: []int64{-1}}}, nil
	}
	rank := int64(len(x.Shape))
	start, end := clampIndex(c.int("start", 0), rank), clampIndex(c.int("end", rank), rank)
	ints := []int64{}
	for i := start; i < end; i++ {
		ints = append(ints, orUnknown(x.Shape[i]))
	}
	return []Value{{Elem: int64Type, Shape: []int64{int64(len(ints))}, Ints: ints}}, nil
}

// clampIndex turns an index that may count from the end into one within [0, rank].
func clampIndex(i, rank int64) int64 {
	if i < 0 {
		i += rank
	}
	return min(max(i, 0), rank)
}

func orUnknown(d int64) int64 {
	if d < 0 {
		return Unknown
	}
	return d
}

func sizeOf(c *call) ([]Value, error) {
	return []Value{{Elem: int64Type, Shape: []int64{}, Ints: []int64{orUnknown(c.in(0).Elements())}}}, nil
}

func rangeOf(c *call) ([]Value, error) {
	out := Value{Elem: c.in(0).Elem, Shape: []int64{-1}}
	for i := range 3 {
		if v := c.in(i).Ints; len(v) != 1 || v[0] == Unknown {
			return []Value{out}, nil
		}
	}
	start, limit, step := c.in(0).Ints[0], c.in(1).Ints[0], c.in(2).Ints[0]
	if step == 0 {
		return nil, errors.New("the step is 0")
	}
	const far = 1 << 40
	if max(start, -start, limit, -limit, step, -step) > far {
		return []Value{out}, nil
	}
	n := max(0, (limit-start+step-sign(step))/step)
	out.Shape = []int64{n}
	for i := int64(0); n <= maxInts && i < n; i++ {
		out.Ints = append(out.Ints, start+i*step)
	}
	return []Value{out}, nil
}

func sign(v int64) int64 {
	if v < 0 {
		return -1
	}
	return 1
}

func nonZero(c *call) ([]Value, error) {
	rank := int64(-1)
	if s := c.in(0).Shape; s != nil {
		rank = int64(len(s))
	}
	return []Value{{Elem: int64Type, Shape: []int64{rank, -1}}}, nil
}

func oneHot(c *call) ([]Value, error) {
	index, depth := c.in(0), c.in(1).Ints
	out := c.in(2).of(nil)
	if index.Shape == nil {
		return []Value{out}, nil
	}
	at, err := axis(c.int("axis", -1), len(index.Shape)+1)
	if err != nil {
		return nil, err
	}
	size := int64(-1)
	if len(depth) == 1 {
		size = max(depth[0], -1)
	}
	for i, d := range index.Shape {
		if i == at {
			out.Shape = append(out.Shape, size)
		}
		out.Shape = append(out.Shape, d)
	}
	if at == len(index.Shape) {
		out.Shape = append(out.Shape, size)
	}
	return []Value{out}, nil
}

func cast(c *call) ([]Value, error) {
	to := onnxpb.TensorProto_DataType(c.int("to", 0))
	if to == onnxpb.TensorProto_UNDEFINED {
		return nil, errors.New("it has no element type to cast to")
	}
	return []Value{castTo(c.in(0), to)}, nil
}

func castLike(c *call) ([]Value, error) { return []Value{castTo(c.in(0), c.in(1).Elem)}, nil }

// castTo keeps the known contents, even in a cast to float: exporters cast sizes
// to float and back.
func castTo(x Value, to onnxpb.TensorProto_DataType) Value {
	return Value{Elem: to, Shape: x.Shape, Ints: x.Ints}
}
