package operator

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/shape"
)

// describe is the key: type{attributes}(inputs)->(outputs).
func (o *Operator) describe() string {
	if o.View {
		return o.Type + " view" // A view costs the same for all shapes.
	}
	b := make([]byte, 0, 256)
	b = append(b, o.Type...)
	if text := o.settings(); len(text) > 0 {
		b = append(b, '{')
		b = append(b, strings.Join(text, " ")...)
		b = append(b, '}')
	}
	b = append(b, '(')
	for i, in := range o.Inputs {
		if i > 0 {
			b = append(b, ' ')
		}
		b = in.describe(b, !shapesTell[o.name()])
	}
	b = append(b, ")->("...)
	for i, out := range o.Outputs {
		if i > 0 {
			b = append(b, ' ')
		}
		b = out.describe(b, false)
	}
	return string(append(b, ')'))
}

// shapesTell holds the operators whose output shape already has the information of
// their contents.
var shapesTell = map[string]bool{
	"Reshape": true, "Expand": true, "Squeeze": true, "Unsqueeze": true, "Tile": true, "ConstantOfShape": true,
}

// describe appends "FP32[b,64]", "w:FP32[64]" for a weight, "INT64[2]{b,64}" for
// contents, "INT64[b,9]<100" for rows of a table, "^0" for input 0 once more and "-" for
// an absent operand.
func (o Operand) describe(b []byte, contents bool) []byte {
	switch {
	case o.Role == Absent:
		return append(b, '-')
	case o.Same > 0:
		return strconv.AppendInt(append(b, '^'), int64(o.Same-1), 10)
	case o.Role == Weight:
		b = append(b, "w:"...)
	}
	b = append(b, o.Type...)
	b = append(b, '[')
	b = appendDims(b, o.Shape)
	b = append(b, ']')
	switch {
	case o.Role == Contents && contents:
		b = append(b, '{')
		b = o.appendContents(b)
		b = append(b, '}')
	case o.Lookup > 0:
		b = strconv.AppendInt(append(b, '<'), o.Lookup, 10)
	}
	return b
}

// maxShown is the maximum number of contents that a key shows. For more it has a
// checksum.
const maxShown = 16

func (o Operand) appendContents(b []byte) []byte {
	switch {
	case o.Contents == nil:
		return append(b, tensorText(o.Constant)...)
	case len(o.Contents) <= maxShown:
		return appendDims(b, o.Contents)
	}
	sum := fnv.New64a()
	sum.Write(appendDims(nil, o.Contents))
	return fmt.Appendf(b, "#%016x", sum.Sum64())
}

func appendDims(b []byte, dims []Dim) []byte {
	for i, d := range dims {
		if i > 0 {
			b = append(b, ',')
		}
		if d.PerRow == 0 {
			b = strconv.AppendInt(b, d.Fixed, 10)
		} else {
			b = append(b, d.String()...)
		}
	}
	return b
}

// settings are the attributes that affect the operator's time, as sorted texts, without
// those that have their default.
func (o *Operator) settings() []string {
	var all []string
	for _, a := range o.Attributes {
		name := a.GetName()
		if name == "epsilon" || name == "momentum" || name == "axis" || name == "kernel_shape" && o.input(1).Role == Weight {
			continue
		}
		text := attributeText(a)
		if text == defaults[name] || text == defaults[o.name()+"."+name] || uniform(a, neutral[name]) {
			continue
		}
		all = append(all, name+"="+text)
	}
	if text, ok := o.axis(); ok {
		all = append(all, "axis="+text)
	}
	if o.flattens() {
		all = append(all, "flat")
	}
	slices.Sort(all)
	return all
}

// defaults maps attributes to their default. "Gemm.alpha" is for one operator only.
var defaults = map[string]string{
	"auto_pad": "NOTSET", "group": "1", "ceil_mode": "0", "storage_order": "0", "count_include_pad": "0",
	"allowzero": "0", "stash_type": "1", "keepdims": "1", "noop_with_empty_axes": "0", "transA": "0", "transB": "0",
	"transBatchA": "0", "transBatchB": "0", "input_forget": "0", "layout": "0", "direction": "forward",
	"training_mode": "0", "channels_last": "0", "select_last_index": "0", "largest": "1", "sorted": "1",
	"exclusive": "0", "reverse": "0", "batch_dims": "0", "upper": "1", "reduction": "none",
	"Gemm.alpha": "1", "Gemm.beta": "1", "FusedGemm.alpha": "1", "FusedGemm.beta": "1", "FusedMatMul.alpha": "1",
	"GELU.approximate": "none", "Pad.mode": "constant",
}

// neutral is the default of every number of an attribute.
var neutral = map[string]int64{"strides": 1, "dilations": 1, "pads": 0}

func uniform(a *onnxpb.AttributeProto, of int64) bool {
	if _, known := neutral[a.GetName()]; !known {
		return false
	}
	return !slices.ContainsFunc(a.GetInts(), func(v int64) bool { return v != of })
}

// axes are the defaults of the attribute axis.
var axes = map[string]int64{
	"Gather": 0, "GatherElements": 0, "ScatterElements": 0, "Split": 0, "ArgMax": 0, "ArgMin": 0, "Flatten": 1,
	"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "LayerNormalization": -1, "TopK": -1, "OneHot": -1,
}

// axis is the attribute axis, counted from the front; false if the operator has none.
func (o *Operator) axis() (string, bool) {
	at, known := axes[o.name()]
	if o.flattens() {
		at = 1
	}
	if a := o.attribute("axis"); a != nil {
		at, known = a.GetI(), true
	}
	if rank := int64(len(o.input(0).Shape)); at < 0 {
		at += rank
	}
	return strconv.FormatInt(at, 10), known
}

// flattens reports whether the operator treats all dimensions from the axis on as one,
// as these did before opset 13.
func (o *Operator) flattens() bool {
	n := o.name()
	return o.Domain == "" && o.Opset > 0 && o.Opset < 13 && (n == "Softmax" || n == "LogSoftmax" || n == "Hardmax")
}

func attributeText(a *onnxpb.AttributeProto) string {
	switch {
	case a.GetT() != nil:
		return tensorText(a.GetT())
	case a.S != nil:
		return string(a.GetS())
	case len(a.GetInts()) > 0:
		return join(a.GetInts(), func(v int64) string { return strconv.FormatInt(v, 10) })
	case len(a.GetFloats()) > 0:
		return join(a.GetFloats(), float)
	case len(a.GetStrings()) > 0:
		return join(a.GetStrings(), func(v []byte) string { return string(v) })
	case a.GetType() == onnxpb.AttributeProto_FLOAT || a.F != nil && a.I == nil:
		return float(a.GetF())
	}
	return strconv.FormatInt(a.GetI(), 10)
}

func join[T any](values []T, text func(T) string) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = text(v)
	}
	return strings.Join(parts, ",")
}

func float(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }

// tensorText describes a constant: its values if they are few floats, otherwise its
// type, its dimensions and a checksum.
func tensorText(t *onnxpb.TensorProto) string {
	if values := shape.Floats(t, maxKept); values != nil && len(values) <= maxShown {
		return join(values, float)
	}
	sum := fnv.New64a()
	sum.Write(t.GetRawData())
	fmt.Fprint(sum, t.GetFloatData(), t.GetInt64Data(), t.GetInt32Data(), t.GetDoubleData(), t.GetUint64Data())
	return fmt.Sprintf("%d%v#%016x", t.GetDataType(), t.GetDims(), sum.Sum64())
}
