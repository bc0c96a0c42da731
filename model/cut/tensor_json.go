package cut

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// described is a [Tensor] in JSON. A region is "from" and "to" of each dimension, null if
// the tensor is whole. Shape and Further are the whole tensor's at the reference batch and
// the one after it, in the model's order of dimensions; null if the rank is unknown.
type described struct {
	Name    string      `json:"name"`
	As      string      `json:"as"`
	Type    tensor.Type `json:"type"`
	Shape   []int64     `json:"shape"`
	Further []int64     `json:"further"`
	Region  [][2]int64  `json:"region"`
}

// MarshalJSON writes all that a master must know of the tensor, so it need not analyse the
// model again.
func (t Tensor) MarshalJSON() ([]byte, error) {
	d := described{Name: t.Name, As: t.As, Type: t.value.elem, Shape: t.value.shape, Further: t.value.further}
	if t.Region != nil {
		d.Region = make([][2]int64, len(t.Region))
		for i, s := range t.Region {
			d.Region[i] = [2]int64{s.From, s.To}
		}
	}
	return json.Marshal(d)
}

// UnmarshalJSON reads what MarshalJSON wrote. It refuses a region outside the tensor.
func (t *Tensor) UnmarshalJSON(text []byte) error {
	var d described
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	v := &value{name: d.Name, elem: d.Type, shape: d.Shape, further: d.Further, from: -1}
	read := Tensor{Name: d.Name, As: d.As, value: v}
	if d.Region != nil {
		read.Region = make(Region, len(d.Region))
		for i, s := range d.Region {
			read.Region[i] = Span{s[0], s[1]}
		}
	}
	if err := read.validate(); err != nil {
		return fmt.Errorf("tensor %q: %w", d.Name, err)
	}
	*t = read
	return nil
}

// maxSize bounds a dimension, so that no product of them overflows unnoticed.
const maxSize = 1 << 40

func (t Tensor) validate() error {
	v := t.value
	switch {
	case t.Name == "" || t.As == "":
		return errors.New("it has no name")
	case v.elem.Size() == 0:
		return fmt.Errorf("its elements are of the type %q, which cannot be sent", v.elem)
	case len(v.shape) != len(v.further) || (v.shape == nil) != (v.further == nil):
		return fmt.Errorf("it has the shapes %v and %v", v.shape, v.further)
	}
	for _, n := range slices.Concat(v.shape, v.further) {
		if n < -1 || n > maxSize {
			return fmt.Errorf("it has a dimension of %d", n)
		}
	}
	if t.Region == nil {
		return nil
	}
	shape := t.Shape(reference)
	if len(t.Region) != len(shape) || shape == nil {
		return fmt.Errorf("the region %v is not of the shape %v", t.Region, shape)
	}
	for d, s := range t.Region {
		if s.From < 0 || s.empty() || s.To > shape[d] {
			return fmt.Errorf("the region %v is not within the shape %v", t.Region, shape)
		}
	}
	return nil
}
