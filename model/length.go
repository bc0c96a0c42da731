package model

import (
	"github.com/faas-infer/faas-infer/model/tensor"
)

// FreeLength is a length that a model's requests choose, such as the number of tokens of a text.
type FreeLength struct {
	// Length is its usual size, Unit what it counts: "tokens", or "steps" of anything but whole
	// numbers.
	Length int64
	Unit   string
	usual  tensor.Shapes
	free   map[string][]bool
}

// FreeLength returns the model's free length with these usual sizes: its first free dimension
// other than the batch, with all other free ones of the same usual size. It is nil if the model has
// no such dimension, or if those of an image are free: images have one size.
func (m *Model) FreeLength(shapes tensor.Shapes) (*FreeLength, error) {
	sized, _, err := m.Sized(shapes)
	if err != nil {
		return nil, err
	}
	l := &FreeLength{usual: tensor.Shapes{}, free: map[string][]bool{}}
	usual := sized.Inputs()
	for i, in := range m.Inputs() {
		l.usual[in.Name] = usual[i].Shape
		free := make([]bool, len(in.Shape))
		for k, d := range in.Shape {
			if k == 0 || d >= 0 {
				continue
			}
			if len(in.Shape) == 4 {
				return nil, nil
			}
			if l.Length == 0 {
				l.Length, l.Unit = usual[i].Shape[k], "steps"
				if in.Type == tensor.Int64 || in.Type == tensor.Int32 {
					l.Unit = "tokens"
				}
			}
			free[k] = usual[i].Shape[k] == l.Length
		}
		l.free[in.Name] = free
	}
	if l.Length == 0 {
		return nil, nil
	}
	return l, nil
}

// Shapes are whole shapes of a row with a length.
func (l *FreeLength) Shapes(length int64) tensor.Shapes {
	out := tensor.Shapes{}
	for name, usual := range l.usual {
		s := append([]int64{1}, usual[1:]...)
		for k, free := range l.free[name] {
			if free {
				s[k] = length
			}
		}
		out[name] = s
	}
	return out
}

// Elements is the number of elements of a row with a length, of all inputs together.
func (l *FreeLength) Elements(length int64) (sum int64) {
	for _, s := range l.Shapes(length) {
		n, err := tensor.Elements(s)
		if err == nil {
			sum += n
		}
	}
	return sum
}

// Max is the largest length that shapes allow, 0 for any.
func (l *FreeLength) Max(shapes tensor.Shapes) (length int64) {
	for name, s := range shapes {
		for k, free := range l.free[name] {
			if free && k < len(s) && (length == 0 || s[k] < length) {
				length = s[k]
			}
		}
	}
	return length
}
