package operator

import (
	"math"
	"slices"
)

// Features are an operator's work at a batch size. Within a family its time depends on
// them.
type Features struct {
	FLOPs int64 `json:"flops"`
	// InBytes and OutBytes are the sizes of the activations that it reads and
	// writes, WeightBytes the size of the constants that it reads. Only the
	// looked-up rows of a table count.
	InBytes     int64 `json:"in"`
	OutBytes    int64 `json:"out"`
	WeightBytes int64 `json:"weights"`
}

// picks holds the operators that read only as much as they write.
var picks = map[string]bool{
	"Gather": true, "GatherElements": true, "GatherND": true, "Slice": true, "Shape": true, "Size": true,
	"EmbedLayerNormalization": true,
}

// Features is the operator's work at a batch size.
func (o *Operator) Features(batch int) Features {
	if o.View {
		return Features{}
	}
	b := float64(batch)
	f := Features{FLOPs: int64(math.Round(o.FLOPs[0] + b*(o.FLOPs[1]+b*o.FLOPs[2])))}
	for _, out := range o.Outputs {
		f.OutBytes += out.Bytes(batch)
	}
	for _, in := range o.Inputs {
		switch {
		case in.Same > 0:
		case in.Role == Weight:
			f.WeightBytes += in.Bytes(batch)
		default:
			f.InBytes += in.Bytes(batch)
		}
	}
	if picks[o.name()] {
		f.InBytes, f.WeightBytes = min(f.InBytes, f.OutBytes), min(f.WeightBytes, f.OutBytes)
	}
	return f
}

// Family is the operator's type and, after a slash, the part of the type with its own
// law of cost: "Conv/depthwise". A fused activation does not matter:
// com.microsoft.FusedConv is a Conv.
func (o *Operator) Family() string {
	if o.family == "" {
		return o.split()
	}
	return o.family
}

// unfused maps fused types to the type whose kernel they use.
var unfused = map[string]string{"FusedConv": "Conv", "FusedGemm": "Gemm"}

func (o *Operator) split() string {
	family := o.Type
	if plainer, ok := unfused[o.name()]; ok {
		family = plainer
	}
	if part := o.part(); part != "" {
		return family + "/" + part
	}
	return family
}

func (o *Operator) part() string {
	switch name := o.name(); {
	case o.View:
		return "view"
	case name == "Conv" || name == "FusedConv" || name == "ConvInteger" || name == "QLinearConv" || name == "ConvTranspose":
		return o.convolution()
	case name == "MatMul" || name == "FusedMatMul" || name == "MatMulInteger":
		if o.input(1).Role == Weight {
			return "weight" // packed when the model is loaded
		}
		return "batched"
	case name == "Transpose":
		return o.transposition()
	case len(o.Outputs) == 1 && o.input(1).Role < Contents && broadcasts[name]:
		return o.broadcast()
	case name == "Softmax" || len(name) > 6 && name[:6] == "Reduce":
		return o.reduction()
	}
	return ""
}

// convolution names the kernel of a convolution.
func (o *Operator) convolution() string {
	at := 1
	if o.name() == "QLinearConv" {
		at = 3
	}
	w := o.input(at).Shape
	if len(w) < 3 {
		return ""
	}
	kernel := int64(1)
	for _, d := range w[2:] {
		kernel *= d.Fixed
	}
	groups := o.int("group", 1)
	switch {
	case groups > 1 && w[1].Fixed == 1:
		return "depthwise"
	case groups > 1:
		return "grouped"
	case len(w) == 3:
		return "1d"
	case o.Domain == blocked && len(o.input(0).Shape) == 4 && o.input(0).Shape[1].Fixed%8 != 0:
		return "unblocked" // The first convolution reads an image that is not in blocks.
	case kernel == 1:
		return "pointwise"
	}
	return ""
}

// transposition names the kind of a transposition. One that keeps the last dimension
// moves whole rows.
func (o *Operator) transposition() string {
	perm := o.attribute("perm").GetInts()
	if n := len(perm); n > 0 && perm[n-1] == int64(n-1) {
		return "rows"
	}
	return ""
}

// broadcasts are the element-wise operators of two inputs.
var broadcasts = map[string]bool{
	"Add": true, "Sub": true, "Mul": true, "Div": true, "Pow": true, "Max": true, "Min": true, "PRelu": true,
	"Mod": true, "Equal": true, "Greater": true, "Less": true, "And": true, "Or": true,
}

// broadcast names the kind of a broadcast. Reading a scalar costs nothing; other
// operands are repeated.
func (o *Operator) broadcast() string {
	a, b := o.input(0), o.input(1)
	switch n, m := a.Elements(1), b.Elements(1); {
	case n == 1 && len(a.Shape) <= len(b.Shape) && !moves(a) || m == 1 && len(b.Shape) <= len(a.Shape) && !moves(b):
		return "scalar"
	case n != m:
		return "broadcast"
	}
	return ""
}

// moves reports whether the operand's shape depends on the batch.
func moves(o Operand) bool {
	return slices.ContainsFunc(o.Shape, func(d Dim) bool { return d.PerRow != 0 })
}

// reduction names the kind of a reduction. Along the last dimension elements are
// adjacent in memory.
func (o *Operator) reduction() string {
	rank := int64(len(o.input(0).Shape))
	last := func(a int64) bool { return a == -1 || a == rank-1 }
	if o.name() == "Softmax" {
		if o.flattens() || last(o.int("axis", -1)) {
			return ""
		}
		return "strided"
	}
	along := o.attribute("axes").GetInts()
	for _, d := range o.input(1).Contents {
		along = append(along[:len(along):len(along)], d.Fixed)
	}
	for _, a := range along {
		if last(a) {
			return ""
		}
	}
	if len(along) == 0 {
		return ""
	}
	return "strided"
}
