package shape

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// numbers turns fuzzed bytes into small and extreme integers.
type numbers []byte

func (n *numbers) next() int64 {
	if len(*n) == 0 {
		return 0
	}
	b := (*n)[0]
	*n = (*n)[1:]
	switch {
	case b == 255:
		return 1 << 62
	case b == 254:
		return -1 << 63
	case b == 253:
		return 1 << 40
	}
	return int64(int8(b))
}

func (n *numbers) list(most int) []int64 {
	out := []int64{}
	for range uint64(n.next()) % uint64(most+1) {
		out = append(out, n.next())
	}
	return out
}

func (n *numbers) value() Value {
	v := Value{Elem: onnxpb.TensorProto_INT64}
	switch n.next() % 4 {
	case 0: // unknown
	case 1: // contents
		v.Ints = n.list(6)
		v.Shape = []int64{int64(len(v.Ints))}
	default:
		v.Shape = n.list(5)
		for i, d := range v.Shape {
			v.Shape[i] = max(d, -1)
		}
	}
	return v
}

var fuzzedAttributes = []string{
	"axis", "axes", "perm", "kernel_shape", "strides", "pads", "dilations", "group", "ceil_mode", "keepdims", "split",
	"starts", "ends", "hidden_size", "layout", "blocksize", "to", "output_shape", "output_padding", "transA", "allowzero", "shape",
	"num_heads", "q_num_heads", "kv_num_heads", "qkv_hidden_sizes", "channels", "channels_last", "scales", "K", "N",
	"transBatchA", "size", "step", "dim", "equation", "gather_axis", "bits", "k", "onesided", "inverse",
	"sampling_ratio", "output_height",
}

// equations are values of Einsum's attribute, the only one that is a text.
var equations = []string{"ij,jk->ik", "bhid,bhjd->bhij", "ii->i", "ij", "i,i", "...i->i", "->", ",", "a->b"}

// No node makes a rule panic, and every inferred value is one that settle allows.
func FuzzInfer(f *testing.F) {
	var kinds, of []string
	for _, domain := range []string{"", "com.microsoft", "com.microsoft.nchwc"} {
		for _, kind := range slices.Sorted(maps.Keys(domains[domain])) {
			kinds, of = append(kinds, kind), append(of, domain)
		}
	}
	if len(kinds) > 256 {
		f.Fatalf("%d operators are more than a byte can name", len(kinds))
	}
	for i := range kinds {
		f.Add(uint8(i), []byte{2, 4, 2, 3, 8, 8, 2, 4, 4, 3, 3, 3, 1, 2, 1, 1, 2, 1, 0}, uint8(1))
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte, outputs uint8) {
		n := numbers(data)
		at := int(kind) % len(kinds)
		node := &onnxpb.NodeProto{OpType: &kinds[at], Domain: &of[at], Output: make([]string, outputs%5)}
		var inputs []Value
		for i := range uint64(n.next()) % 6 {
			node.Input = append(node.Input, fmt.Sprint("in", i))
			inputs = append(inputs, n.value())
		}
		for range uint64(n.next()) % 5 {
			values := append(n.list(6), 0)
			node.Attribute = append(node.Attribute, &onnxpb.AttributeProto{
				Name: &fuzzedAttributes[uint64(n.next())%uint64(len(fuzzedAttributes))], I: &values[0], Ints: values[:len(values)-1],
				S: []byte(equations[uint64(values[0])%uint64(len(equations))]),
			})
		}
		got, _, err := Infer(node, 17, inputs)
		if err != nil {
			return
		}
		for _, v := range got {
			if len(v.Shape) > maxRank || slices.ContainsFunc(v.Shape, func(d int64) bool { return d < -1 }) ||
				v.Ints != nil && int64(len(v.Ints)) != v.Elements() {
				t.Errorf("%v %v gives %+v", node, inputs, v)
			}
		}
		if cost := Cost(node, inputs, got); cost < -1 {
			t.Errorf("%v %v costs %d", node, inputs, cost)
		}
	})
}
