package tensor

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// stringPrefix is the length in bytes of the length before each element of a [Bytes] tensor.
const stringPrefix = 4

// AppendString appends s as an element of a [Bytes] tensor's data.
func AppendString[S ~string | ~[]byte](data []byte, s S) []byte {
	return append(binary.LittleEndian.AppendUint32(data, uint32(len(s))), s...)
}

// CutString returns the first element of a [Bytes] tensor's data, and the data after it. It
// returns an error if the data end within the element. element aliases data.
func CutString(data []byte) (element, rest []byte, err error) {
	if len(data) < stringPrefix {
		return nil, nil, fmt.Errorf("%d bytes are left where a length of %d bytes is expected", len(data), stringPrefix)
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if rest = data[stringPrefix:]; n > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("an element has a length of %d bytes, but %d follow", n, len(rest))
	}
	return rest[:n:n], rest[n:], nil
}

// CheckStrings checks that data are exactly n elements of a [Bytes] tensor. The error names the
// element, counted from 0.
func CheckStrings(data []byte, n int64) error {
	for i := range n {
		if len(data) == 0 {
			return fmt.Errorf("it has %d elements, but its shape needs %d", i, n)
		}
		_, rest, err := CutString(data)
		if err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
		data = rest
	}
	if len(data) > 0 {
		return fmt.Errorf("%d bytes follow the last of %d elements", len(data), n)
	}
	return nil
}

// Strings yields the elements of a [Bytes] tensor's data, which alias it. It ends at the first
// element that the data do not hold as a whole: see [CheckStrings].
func Strings(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			element, rest, err := CutString(data)
			if err != nil || !yield(element) {
				return
			}
			data = rest
		}
	}
}

// Split divides tensors by rows, without a copy: the part at i has rows[i] rows of each. An append
// to one part cannot overwrite the next. The error names a tensor whose first dimension or whose
// data are not those of all the rows together.
func Split(tensors []Tensor, rows []int) ([][]Tensor, error) {
	parts := make([][]Tensor, len(rows))
	for i := range parts {
		parts[i] = slices.Clone(tensors)
	}
	total := 0
	for _, n := range rows {
		total += n
	}
	for k, t := range tensors {
		if len(t.Shape) == 0 || t.Shape[0] != int64(total) {
			return nil, fmt.Errorf("%q has the shape %v for %d rows, so it cannot be split", t.Name, t.Shape, total)
		}
		data := t.Data
		for i, n := range rows {
			size, err := t.sizeOf(data, n, total)
			if err != nil {
				return nil, fmt.Errorf("%q with the shape %v for %d rows cannot be split: %w", t.Name, t.Shape, total, err)
			}
			parts[i][k].Data = data[:size:size]
			parts[i][k].Shape = slices.Clone(t.Shape)
			parts[i][k].Shape[0] = int64(n)
			data = data[size:]
		}
		if len(data) > 0 {
			return nil, fmt.Errorf("%q with the shape %v has %d bytes more than %d rows", t.Name, t.Shape, len(data), total)
		}
	}
	return parts, nil
}

// sizeOf is the length in bytes of the first n rows in data, the rest of the tensor's. total is
// the number of all its rows.
func (t Tensor) sizeOf(data []byte, n, total int) (int, error) {
	if t.Type != Bytes {
		if len(t.Data)%total != 0 {
			return 0, fmt.Errorf("its %d bytes are not a multiple of the rows", len(t.Data))
		}
		return len(t.Data) / total * n, nil
	}
	elements, err := Elements(t.Shape[1:])
	if err != nil {
		return 0, err
	}
	rest := data
	for range int64(n) * elements {
		if _, rest, err = CutString(rest); err != nil {
			return 0, err
		}
	}
	return len(data) - len(rest), nil
}
