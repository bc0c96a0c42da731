package operator

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/shape"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// maxKept is the maximum number of elements of a constant whose values are kept.
const maxKept = 64

// random holds the operators with a new result in every run. They are not folded.
var random = map[string]bool{
	"RandomNormal": true, "RandomNormalLike": true, "RandomUniform": true, "RandomUniformLike": true,
	"Bernoulli": true, "Multinomial": true,
}

// views holds the operators that only give a tensor another shape.
var views = map[string]bool{"Reshape": true, "Flatten": true, "Squeeze": true, "Unsqueeze": true, "Identity": true}

// add adds node i to the graph.
func (r *reading) add(i int) error {
	op := &r.at[0].Operators[i]
	if r.folds(op.Node) {
		for _, name := range op.Node.GetOutput() {
			r.folded[name] = true
		}
		return nil
	}
	o := &Operator{Type: op.Type, Attributes: op.Node.GetAttribute()}
	if d := op.Node.GetDomain(); d != "ai.onnx" {
		o.Domain = d
	}
	o.Opset = r.opsets[o.Domain]
	err := r.inputs(o, i)
	if err == nil {
		err = r.results(o, i)
	}
	if err != nil {
		return &Unpredictable{[]string{fmt.Sprintf("%s (%s)", op.Name, op.Type)}, err.Error()}
	}
	o.View = o.Domain == "" && views[o.Type] && len(op.Inputs) > 0 && len(op.Outputs) == 1 && !r.outputs[op.Outputs[0].Name]
	o.Unknown = op.FLOPs == 0 && slices.Contains(r.at[0].Unknown, op.Name) || o.withText()
	o.FLOPs = polynomial(float64(op.FLOPs), float64(r.at[1].Operators[i].FLOPs), float64(r.at[2].Operators[i].FLOPs))
	r.call(op, o)
	return nil
}

// withText reports whether a tensor of the operator has elements of no fixed size, as strings have. Its time follows
// from their lengths, and it cannot be measured alone.
func (o *Operator) withText() bool {
	return slices.ContainsFunc(slices.Concat(o.Inputs, o.Outputs), func(t Operand) bool { return t.Role != Absent && t.Type.Size() == 0 })
}

// folds reports whether a node runs only once, when the model is loaded.
func (r *reading) folds(n *onnxpb.NodeProto) bool {
	switch {
	case n.GetOpType() == "Constant" && n.GetDomain() == "":
		return true
	case r.optimised || random[n.GetOpType()]:
		return false
	}
	return !slices.ContainsFunc(n.GetInput(), func(name string) bool { return name != "" && !r.folded[name] })
}

// values are operand j of node i at each batch size. j does not count operands that the
// node leaves out.
func (r *reading) values(i, j int, of func(*model.Operator) []model.Value) (vs [3]model.Value) {
	for k, g := range r.at {
		vs[k] = of(&g.Operators[i])[j]
	}
	return vs
}

func (r *reading) inputs(o *Operator, i int) error {
	names := r.at[0].Operators[i].Node.GetInput()
	skipped := 0
	for j, name := range names {
		if name == "" {
			skipped++
			o.Inputs = append(o.Inputs, Operand{Role: Absent})
			continue
		}
		vs := r.values(i, j-skipped, func(op *model.Operator) []model.Value { return op.Inputs })
		in, err := r.input(o, j, vs)
		if err != nil {
			return err
		}
		if in.Role != Contents {
			in.Same = 1 + slices.Index(names[:j], name)
		}
		o.Inputs = append(o.Inputs, in)
	}
	for j := range o.Inputs {
		if in := &o.Inputs[j]; in.Role == Activation || in.Role == Weight && in.Constant == nil {
			in.Lookup = o.bound(j)
		}
	}
	return nil
}

// input describes input j.
func (r *reading) input(o *Operator, j int, vs [3]model.Value) (Operand, error) {
	v := vs[0]
	dims, err := shapes(vs)
	in := Operand{Type: v.Type, Shape: dims}
	if err != nil {
		return in, err
	}
	k := kindOf(o.name(), j)
	fixed := r.folded[v.Name]
	if fixed {
		in.Role = Weight
		r.weigh(v.Name, in)
		if t := v.Constant; t != nil && t.GetDataLocation() != onnxpb.TensorProto_EXTERNAL && in.Elements(0) <= maxKept {
			in.Constant = t
		}
	}
	if byValue(v.Type, k) {
		if contents, ok := contents(vs); ok {
			in.Role, in.Contents, in.Constant = Contents, contents, nil
			return in, nil
		}
	}
	if k == decides && in.Elements(1) > 0 {
		if in.Constant == nil {
			return in, fmt.Errorf("the values of its input %d are only known while the model runs", j)
		}
		in.Role = Contents
	}
	return in, nil
}

// byValue reports whether elements of the type and kind are kept by value. These are
// whole numbers except those of quantised arithmetic, and values that affect the time.
func byValue(t tensor.Type, k kind) bool {
	switch {
	case k == bias || k == zero || k == scale:
		return false
	case k == decides:
		return true
	}
	return t == tensor.Int64 || t == tensor.Int32 || t == tensor.Bool
}

// results are the outputs of node i.
func (r *reading) results(o *Operator, i int) error {
	skipped := 0
	for j, name := range r.at[0].Operators[i].Node.GetOutput() {
		if name == "" {
			skipped++
			o.Outputs = append(o.Outputs, Operand{Role: Absent})
			continue
		}
		vs := r.values(i, j-skipped, func(op *model.Operator) []model.Value { return op.Outputs })
		if vs[0].Shape == nil || slices.Contains(vs[0].Shape, -1) { // No node reads it.
			o.Outputs = append(o.Outputs, Operand{Role: Absent})
			continue
		}
		dims, err := shapes(vs)
		if err != nil {
			return err
		}
		o.Outputs = append(o.Outputs, Operand{Type: vs[0].Type, Shape: dims})
	}
	return nil
}

// call adds a node, and its operator if it is new.
func (r *reading) call(op *model.Operator, o *Operator) {
	o.key, o.family = o.describe(), o.split()
	at, known := r.operator[o.key]
	if !known {
		at = len(r.graph.Operators)
		r.operator[o.key] = at
		r.graph.Operators = append(r.graph.Operators, o)
	}
	n, index := Node{Name: op.Name, Operator: at}, len(r.graph.Nodes)
	if o.Unknown {
		r.graph.Unknown = append(r.graph.Unknown, fmt.Sprintf("%s (%s)", op.Name, op.Type))
	}
	for _, in := range op.Inputs {
		if p, computed := r.producer[in.Name]; computed {
			n.Inputs = append(n.Inputs, p)
		}
		r.read(in.Name, index)
	}
	slices.Sort(n.Inputs)
	n.Inputs = slices.Compact(n.Inputs)
	for j, name := range op.Node.GetOutput() {
		if name == "" {
			continue
		}
		r.producer[name] = index
		if o.View {
			r.tensor[name] = r.tensor[op.Inputs[0].Name]
		} else {
			r.born(name, o.Outputs[j], index)
		}
	}
	r.graph.Nodes = append(r.graph.Nodes, n)
}

// shapes finds how a shape grows with the batch.
func shapes(vs [3]model.Value) ([]Dim, error) {
	a, b, c := vs[0].Shape, vs[1].Shape, vs[2].Shape
	dims := make([]Dim, len(a))
	if len(b) != len(a) || len(c) != len(a) {
		return nil, fmt.Errorf("its shapes are %v, %v and %v at batches of 1, 2 and 5", a, b, c)
	}
	for i := range a {
		d, ok := line(a[i], b[i], c[i])
		if !ok || a[i] < 0 {
			return nil, fmt.Errorf("its shapes are %v, %v and %v at batches of 1, 2 and 5, not linear in the batch", a, b, c)
		}
		dims[i] = d
	}
	return dims, nil
}

// contents finds how the elements grow with the batch. ok is false if they are unknown
// or do not grow linearly.
func contents(vs [3]model.Value) (dims []Dim, ok bool) {
	a, b, c := vs[0].Contents, vs[1].Contents, vs[2].Contents
	if a == nil || len(b) != len(a) || len(c) != len(a) {
		return nil, false
	}
	dims = make([]Dim, len(a))
	for i := range a {
		if dims[i], ok = line(a[i], b[i], c[i]); !ok || a[i] == shape.Unknown {
			return nil, false
		}
	}
	return dims, true
}

// line is the straight line through the numbers at the three batches; false if there is
// none.
func line(a, b, c int64) (Dim, bool) {
	d := Dim{PerRow: b - a}
	d.Fixed = a - d.PerRow*int64(batches[0])
	return d, d.At(batches[2]) == c
}

// polynomial returns the coefficients of 1, b and b² of the polynomial through the
// numbers at the batches 1, 2 and 5.
func polynomial(a, b, c float64) [3]float64 {
	first, second := b-a, (c-b)/3
	square := (second - first) / 4
	linear := first - 3*square
	return [3]float64{a - linear - square, linear, square}
}
