package shape

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// attentionRules are the rules of com.microsoft's operators that hold a
// transformer's whole attention or embedding.
func attentionRules() map[string]rule {
	return map[string]rule{
		"Attention":               {projectedAttention(4), projectedCost},
		"QAttention":              {quantisedAttention, projectedCost},
		"MultiHeadAttention":      {multiHead, multiHeadCost},
		"GroupQueryAttention":     {groupQuery, groupQueryCost},
		"EmbedLayerNormalization": {embedding, parts(2, 4)},
		"RotaryEmbedding":         {unary, parts(2)},
	}
}

// projectedAttention infers an attention that multiplies its input (batch,
// length, width) by the weights of query, key and value itself. past is the
// number of the input with earlier keys and values (2, batch, heads, length,
// head's width).
func projectedAttention(past int) func(*call) ([]Value, error) {
	return func(c *call) ([]Value, error) {
		x, w := c.in(0), c.in(1).Shape
		if x.Shape == nil || w == nil {
			return []Value{x.of(nil), x.of(nil)}, nil
		}
		if len(x.Shape) != 3 || len(w) != 2 || x.Shape[2] >= 0 && w[0] >= 0 && x.Shape[2] != w[0] {
			return nil, fmt.Errorf("input %v does not fit weights %v", x.Shape, w)
		}
		_, value := c.projected()
		heads := c.int("num_heads", 0)
		if heads <= 0 || value >= 0 && value%heads != 0 {
			return nil, fmt.Errorf("num_heads %d does not fit weights %v", heads, w)
		}
		width := int64(-1)
		if value >= 0 {
			width = value / heads
		}
		present := []int64{2, x.Shape[0], heads, c.keys(past), width}
		return []Value{x.of([]int64{x.Shape[0], x.Shape[1], value}), x.of(present)}, nil
	}
}

// projected is the width of a query and of a value over all heads, -1 if unknown.
func (c *call) projected() (query, value int64) {
	if sizes := c.ints("qkv_hidden_sizes"); len(sizes) == 3 {
		return max(sizes[0], -1), max(sizes[2], -1)
	}
	if w := c.in(1).Shape; len(w) == 2 && w[1] >= 0 {
		return w[1] / 3, w[1] / 3
	}
	return -1, -1
}

// keys is the number of keys, with the earlier ones of input past. The last
// dimension but one of that input counts them.
func (c *call) keys(past int) int64 {
	length := c.in(0).Shape[1]
	if !c.given(past) {
		return length
	}
	if p := c.in(past).Shape; len(p) >= 2 {
		return plus(p[len(p)-2], length)
	}
	return -1
}

func quantisedAttention(c *call) ([]Value, error) {
	out, err := projectedAttention(8)(c)
	for i := range out {
		out[i].Elem = c.in(3).Elem
	}
	return out, err
}

// projectedCost is the cost of the projection, the scores, and the weighted sums.
func projectedCost(c *call, out []Value) int64 {
	x, w := c.in(0).Shape, c.in(1).Shape
	if len(x) != 3 || len(w) != 2 {
		return -1
	}
	past := 4
	if c.node.GetOpType() == "QAttention" {
		past = 8
	}
	query, value := c.projected()
	projection := times(product(x), w[1])
	return plus(projection, attentionCost(x[0], x[1], c.keys(past), max(c.int("num_heads", 0), 0), plus(query, value)))
}

// attentionCost is the cost of every query on every key. widths is the width of a
// query plus that of a value, over all heads. The softmax counts one per score.
func attentionCost(batch, queries, keys, heads, widths int64) int64 {
	return times(times(batch, times(queries, keys)), plus(widths, heads))
}

// sequence is a query, key or value. width is the width over all heads.
type sequence struct{ batch, length, width int64 }

// sequenceOf reads the layouts (batch, length, width), (batch, heads, length,
// head's width), and (batch, length, heads, 2 or 3, head's width), in which
// query, key and value are packed together.
func sequenceOf(shape []int64) (sequence, bool) {
	switch len(shape) {
	case 3:
		return sequence{shape[0], shape[1], shape[2]}, true
	case 4:
		return sequence{shape[0], shape[2], times(shape[1], shape[3])}, true
	case 5:
		return sequence{shape[0], shape[1], times(shape[2], shape[4])}, true
	}
	return sequence{-1, -1, -1}, false
}

// multiHeads are the query, key and value of MultiHeadAttention. past is the
// number of the input with earlier keys.
func (c *call) multiHeads(past int) (query, key, value sequence, ok bool) {
	query, ok = sequenceOf(c.in(0).Shape)
	key, value = query, query
	if c.given(1) {
		k, known := sequenceOf(c.in(1).Shape)
		key, value, ok = k, k, ok && known
	}
	if c.given(2) {
		v, known := sequenceOf(c.in(2).Shape)
		value, ok = v, ok && known
	}
	if c.given(past) {
		key.length = -1
		if p := c.in(past).Shape; len(p) == 4 {
			k, _ := sequenceOf(c.in(1).Shape)
			key.length = plus(p[2], max(k.length, -1))
		}
	}
	return query, key, value, ok
}

func multiHead(c *call) ([]Value, error) {
	x, heads := c.in(0), c.int("num_heads", 0)
	if heads <= 0 {
		return nil, fmt.Errorf("num_heads is %d; it must be at least 1", heads)
	}
	query, key, value, ok := c.multiHeads(6)
	if !ok {
		if x.Shape != nil && len(x.Shape) < 3 {
			return nil, fmt.Errorf("query %v has fewer than three dimensions", x.Shape)
		}
		return []Value{x.of(unknown(3)), x.of(unknown(4)), x.of(unknown(4)), x.of(unknown(4))}, nil
	}
	present := func(width int64) Value {
		if width > 0 {
			width /= heads
		}
		return x.of([]int64{query.batch, heads, key.length, width})
	}
	scores := x.of([]int64{query.batch, heads, query.length, key.length})
	return []Value{x.of([]int64{query.batch, query.length, value.width}), present(key.width), present(value.width), scores}, nil
}

func multiHeadCost(c *call, _ []Value) int64 {
	query, key, value, ok := c.multiHeads(6)
	if !ok {
		return -1
	}
	return attentionCost(query.batch, query.length, key.length, max(c.int("num_heads", 0), 0), plus(query.width, value.width))
}

// groupQuery infers an attention in which several query heads share one key head.
// The number of keys is the content of input 6.
func groupQuery(c *call) ([]Value, error) {
	x, heads, shared := c.in(0), c.int("num_heads", 0), c.int("kv_num_heads", 0)
	if heads <= 0 || shared <= 0 {
		return nil, fmt.Errorf("num_heads is %d and kv_num_heads is %d; both must be at least 1", heads, shared)
	}
	if x.Shape == nil {
		return []Value{x.of(unknown(3)), x.of(unknown(4)), x.of(unknown(4))}, nil
	}
	if len(x.Shape) != 3 {
		return nil, fmt.Errorf("query %v does not have three dimensions", x.Shape)
	}
	width := x.Shape[2] / heads
	if !c.given(1) {
		width = x.Shape[2] / plus(heads, times(2, shared))
	}
	if x.Shape[2] < 0 {
		width = -1
	}
	cache := []int64{x.Shape[0], shared, c.total(), width}
	out := []int64{x.Shape[0], x.Shape[1], times(width, heads)}
	return []Value{x.of(out), x.of(cache), x.of(slices.Clone(cache))}, nil
}

// total is the number of keys of GroupQueryAttention, -1 if unknown.
func (c *call) total() int64 {
	if n := c.in(6).Ints; len(n) == 1 {
		return max(n[0], -1)
	}
	return -1
}

func groupQueryCost(c *call, out []Value) int64 {
	s := out[0].Shape
	if len(s) != 3 {
		return -1
	}
	return attentionCost(s[0], s[1], c.total(), max(c.int("num_heads", 0), 0), times(s[2], 2))
}

// embedding infers an operator that looks up words, positions and segments and
// normalises their sum. Its outputs are the normalised sum, the length of each
// row, and the sum.
func embedding(c *call) ([]Value, error) {
	ids, table := c.in(0).Shape, c.in(2)
	if ids == nil || table.Shape == nil {
		return []Value{table.of(unknown(3)), {Elem: onnxpb.TensorProto_INT32, Shape: unknown(1)}, table.of(unknown(3))}, nil
	}
	if len(ids) != 2 || len(table.Shape) != 2 {
		return nil, fmt.Errorf("words %v and table %v do not have two dimensions each", ids, table.Shape)
	}
	out := []int64{ids[0], ids[1], table.Shape[1]}
	return []Value{table.of(out), {Elem: onnxpb.TensorProto_INT32, Shape: []int64{ids[0]}}, table.of(slices.Clone(out))}, nil
}
