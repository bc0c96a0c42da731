package onnxruntime

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/faas-infer/faas-infer/model/ragged"
	"github.com/faas-infer/faas-infer/model/tensor"
)

const (
	// padTolerance and halfPadTolerance are how much an answer may differ for padding, as a part of its largest number. A
	// model that looks at what its mask hides answers otherwise; the order of a sum changes by far less.
	padTolerance     = 1e-4
	halfPadTolerance = 1e-2
	// minPadLength is the usual length from which padding is tried. minPadded is the least number of pairs of rows.
	minPadLength, minPadded = 4, 3
)

// Lengths says whether requests of different lengths run together, "" if that is no question or was not tried.
func (s signature) Lengths() string {
	switch {
	case s.Padding != nil:
		return "requests of different lengths run together, padded"
	case s.Unpadded != "":
		return "requests of different lengths run apart: " + s.Unpadded
	}
	return ""
}

// tryPadding runs rows of different lengths alone, and together as an instance would. It returns how rows are padded if
// the answers are the same, otherwise why they must not be, "" for a model whose rows have one length. outputs are the
// positions of the batch in the outputs.
func (p *probe) tryPadding(t *trial, outputs []int, pairs int) (padding *ragged.Padding, why string) {
	mask, why := ragged.MaskOf(t.inputs)
	if mask < 0 {
		return nil, why
	}
	length := p.shapes[t.inputs[0].Name][1]
	for _, in := range t.inputs {
		if p.shapes[in.Name][1] != length {
			return nil, fmt.Sprintf("inputs %q and %q have different lengths", t.inputs[0].Name, in.Name)
		}
	}
	for i, o := range p.natural.Outputs {
		if outputs[i] > 0 || o.Type.Size() == 0 {
			return nil, fmt.Sprintf("output %q cannot be cut to the length of a row", o.Name)
		}
	}
	if length < minPadLength {
		return nil, fmt.Sprintf("its usual length of %d is too short to try it", length)
	}
	found, tried, failed := &ragged.Padding{Mask: mask}, 0, error(nil)
	of := others
	for pair := range max(minPadded, pairs) {
		short := shortLength(length, pair)
		long := p.maskedRow(t, of, mask, pair, length)
		second, err := t.own(long)
		if err != nil && tried == 0 && of != p.integers { // Large numbers may be indices out of bounds.
			of = p.integers
			long = p.maskedRow(t, of, mask, pair, length)
			second, err = t.own(long)
		}
		row := p.maskedRow(t, of, mask, maxPairs+pair, short)
		first, failedShort := t.own(row)
		if err != nil || failedShort != nil {
			failed = fmt.Errorf("a row of %d elements, or one of %d, does not run", short, length)
			continue
		}
		axes, why := lengthAxes(first, second, short, length)
		if why == "" && tried > 0 && !slices.EqualFunc(axes, found.Axes, slices.Equal) {
			why = "the shapes of its outputs depend on the numbers in a row"
		}
		if why != "" {
			return nil, why
		}
		found.Axes = axes
		if err := padsAlike(t, found, row, long, first, second); err != nil {
			return nil, "filling a row up changes its answer: " + err.Error()
		}
		tried++
	}
	if tried < 2 {
		return nil, failed.Error()
	}
	return found, ""
}

// shortLength is the length of the shorter row of a pair: a half of the usual one, one less, 1 and others.
func shortLength(length int64, pair int) int64 {
	switch pair {
	case 0:
		return length / 2
	case 1:
		return length - 1
	case 2:
		return 1
	}
	return 1 + int64(pair)*(length-1)/(maxPairs+1)
}

// maskedRow makes one row of a length. Its mask has only ones in every other row; it has zeros, too, in the others.
func (p *probe) maskedRow(t *trial, of integers, mask, number int, length int64) []tensor.Tensor {
	inputs := make([]tensor.Tensor, len(t.inputs))
	for i, in := range t.inputs {
		random := rand.New(rand.NewPCG(uint64(number), uint64(i)))
		var data []byte
		for at := range length {
			switch {
			case i == mask && at > 0 && number%2 == 1:
				data = in.Type.Append(data, float64(random.IntN(2)))
			case i == mask:
				data = in.Type.Append(data, 1)
			case i == 0 || i == 1 && mask == 0: // The tokens. Other inputs have fewer values.
				data = appendSample(data, in.Type, random, number, of)
			default:
				data = appendSample(data, in.Type, random, number, p.integers)
			}
		}
		inputs[i] = tensor.Tensor{Name: in.Name, Type: in.Type, Shape: []int64{1, length}, Data: data}
	}
	return inputs
}

// own is run with the outputs' own shapes.
func (t *trial) own(inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	outputs, err := t.run(inputs)
	for i := range outputs {
		outputs[i].Shape = outputs[i].Shape[1:]
	}
	return outputs, err
}

// lengthAxes finds the dimensions of outputs that have the length of a run, by those of two runs.
func lengthAxes(first, second []tensor.Tensor, short, long int64) (axes [][]int, why string) {
	for i, a := range first {
		b := second[i]
		if len(a.Shape) != len(b.Shape) {
			return nil, fmt.Sprintf("output %q has %d dimensions for one length and %d for another", a.Name, len(a.Shape), len(b.Shape))
		}
		own := []int{}
		for d := range a.Shape {
			switch {
			case a.Shape[d] == b.Shape[d]:
			case d > 0 && a.Shape[d] == short && b.Shape[d] == long:
				own = append(own, d)
			default:
				return nil, fmt.Sprintf("output %q has the shape %v for %d elements and %v for %d; it cannot be cut to the length of a row",
					a.Name, a.Shape, short, b.Shape, long)
			}
		}
		axes = append(axes, own)
	}
	return axes, ""
}

// padsAlike runs two rows together and compares them with their outputs alone.
func padsAlike(t *trial, padding *ragged.Padding, row, long, first, second []tensor.Tensor) error {
	together, err := t.own(ragged.Join([]ragged.Row{{Inputs: row}, {Inputs: long}}, func(size int) []byte { return make([]byte, size) }))
	if err != nil {
		return err
	}
	for at, alone := range [][]tensor.Tensor{first, second} {
		length := ragged.Row{Inputs: [][]tensor.Tensor{row, long}[at]}.Length()
		got, err := padding.Row(together, at, length)
		if err != nil {
			return err
		}
		for i := range alone {
			if err := sameRow(alone[i], got[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameRow compares an output of a row among others with that of the same row alone.
func sameRow(alone, padded tensor.Tensor) error {
	if !slices.Equal(alone.Shape, padded.Shape) {
		return fmt.Errorf("output %q has the shape %v in a batch and %v alone", alone.Name, padded.Shape, alone.Shape)
	}
	want, err := alone.Elements()
	if err != nil {
		return err
	}
	got, err := padded.Elements()
	if err != nil {
		return err
	}
	part := padTolerance
	if alone.Type == tensor.FP16 || alone.Type == tensor.BF16 {
		part = halfPadTolerance
	}
	return apart(alone, want, got, part)
}
