package cut

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Tensor is a region of a tensor that goes between the parts. Its first dimension is the
// batch, also where the model has it elsewhere: an LSTM's sequences go row by row.
type Tensor struct {
	// Name is the tensor's in the whole model, As in the part's own model.
	Name, As string
	// Region is nil if the tensor is whole. It is at a batch size that callers need not
	// know; [Tensor.At] is the region within a tensor of any batch.
	Region Region
	value  *value
}

// order is the order of a tensor's dimensions that has the batch first, nil if it is first
// already.
func (v *value) order() []int64 {
	at := v.rowsAt()
	if at <= 0 {
		return nil
	}
	perm := []int64{int64(at)}
	for d := range v.shape {
		if d != at {
			perm = append(perm, int64(d))
		}
	}
	return perm
}

// back is the permutation that undoes another.
func back(perm []int64) []int64 {
	out := make([]int64, len(perm))
	for i, d := range perm {
		out[d] = int64(i)
	}
	return out
}

func permuted[T any](values []T, perm []int64) []T {
	if perm == nil {
		return values
	}
	out := make([]T, len(perm))
	for i, d := range perm {
		out[i] = values[d]
	}
	return out
}

// tensor describes a region of a value, given in the model's order of dimensions.
func (p *Part) tensor(name, as string, r Region) Tensor {
	v := p.group.model.values[name]
	t := Tensor{Name: name, As: as, value: v}
	if p.entire {
		return t
	}
	if v.order() != nil {
		t.As += " rows first"
	}
	if r != nil {
		t.Region = permuted(r, v.order())
	}
	return t
}

// Inputs are the tensors that the part is sent, by name.
func (p *Part) Inputs() []Tensor {
	out := make([]Tensor, 0, len(p.inputs))
	for _, name := range p.inputs {
		out = append(out, p.tensor(name, name, p.held[name]))
	}
	return out
}

// Outputs are the tensors that the part returns, by name.
func (p *Part) Outputs() []Tensor {
	out := make([]Tensor, 0, len(p.outputs))
	for name, r := range p.outputs {
		out = append(out, p.tensor(name, p.resultName(name), r))
	}
	slices.SortFunc(out, func(a, b Tensor) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// resultName is the name of the tensor that holds an output's region within the part's
// model.
func (p *Part) resultName(name string) string {
	if r := p.outputs[name]; r != nil && !r.equal(p.held[name]) {
		return sliceName(name, r)
	}
	return name
}

func sliceName(name string, r Region) string { return name + " " + r.String() }

// Type is the type of the tensor's elements.
func (t Tensor) Type() tensor.Type { return t.value.elem }

// Shape is the shape of the whole tensor at a batch size, nil if it is unknown.
func (t Tensor) Shape(batch int) []int64 {
	if !t.value.known() {
		return nil
	}
	return permuted(t.value.at(whole(t.value.shape), batch), t.value.order())
}

// At is the tensor's region within a tensor of a shape, whose rows are of any batch.
func (t Tensor) At(shape []int64) Region {
	r := whole(shape)
	order := t.value.order()
	for d := range r {
		from := d
		if order != nil {
			from = int(order[d])
		}
		if t.Region != nil && !t.value.rows(from) {
			r[d] = t.Region[d]
		}
	}
	return r
}
