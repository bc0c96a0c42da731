// Package tensor holds a model's inputs and outputs in memory, with the element
// types of the Open Inference Protocol v2. It neither reads files nor computes
// with tensors. Begin with [Info] and [Tensor].
package tensor

import (
	"fmt"
)

// Type is an element type by its Open Inference Protocol name.
type Type string

// The element types of the protocol.
const (
	Bool   Type = "BOOL"
	Uint8  Type = "UINT8"
	Int8   Type = "INT8"
	Int16  Type = "INT16"
	Uint16 Type = "UINT16"
	Int32  Type = "INT32"
	Uint32 Type = "UINT32"
	Int64  Type = "INT64"
	Uint64 Type = "UINT64"
	FP16   Type = "FP16"
	BF16   Type = "BF16"
	FP32   Type = "FP32"
	FP64   Type = "FP64"
	// Bytes are strings. Each element in a tensor's data is its length in four bytes, little
	// endian, and then its bytes, as the protocol's binary extension sends them.
	Bytes Type = "BYTES"
)

// Size is the number of bytes of one element, 0 for an unknown type and for [Bytes], whose
// elements have different sizes.
func (t Type) Size() int {
	switch t {
	case Bool, Uint8, Int8:
		return 1
	case Int16, Uint16, FP16, BF16:
		return 2
	case Int32, Uint32, FP32:
		return 4
	case Int64, Uint64, FP64:
		return 8
	}
	return 0
}

// Info describes an input or output of a model as engines take it. Shape[0] is the batch
// dimension, -1. Other dimensions are positive, or -1 if dynamic.
type Info struct {
	Name  string  `json:"name"`
	Type  Type    `json:"datatype"`
	Shape []int64 `json:"shape"`
	// Edge is the tensor as clients send or get it, nil if that is the same.
	Edge *Edge `json:"edge,omitempty"`
	// Empty says that a dynamic dimension of the input may be 0, as the past of a decoder is at
	// first. Other inputs may not be empty: operators exist that end the process then.
	Empty bool `json:"empty,omitempty"`
}

// Float reports whether the elements are floating-point numbers.
func (t Type) Float() bool { return t == FP16 || t == BF16 || t == FP32 || t == FP64 }

// Elements are the tensor's elements, each as its bytes. Those of [Bytes] come without their
// lengths. The error names a length that is beyond the data.
func (t Tensor) Elements() ([][]byte, error) {
	var out [][]byte
	size := t.Type.Size()
	for data := t.Data; len(data) > 0; {
		var element []byte
		switch {
		case t.Type == Bytes:
			var err error
			if element, data, err = CutString(data); err != nil {
				return nil, fmt.Errorf("%q: element %d: %w", t.Name, len(out), err)
			}
		case size == 0 || size > len(data):
			return nil, fmt.Errorf("%q: %d bytes are no whole number of elements of %s", t.Name, len(t.Data), t.Type)
		default:
			element, data = data[:size], data[size:]
		}
		out = append(out, element)
	}
	return out, nil
}

// Edge describes a tensor of a model that does not have its batch dimension first. Engines
// get such a tensor with its batch dimension moved to the front, or with one put there:
// for example the state [2, n, 128] as [n, 2, 128], and the scalar [] as [1].
type Edge struct {
	// Shape is the model's own shape. Dynamic dimensions, the batch among them, are -1.
	Shape []int64 `json:"shape"`
	// Axis is the position of the batch dimension in Shape. It is -1 for a tensor without
	// one: a request is then one row, whatever the tensor's shape.
	Axis int `json:"axis"`
}

// Tensor is a dense array. Data holds its elements row by row, little endian.
type Tensor struct {
	Name  string
	Type  Type
	Shape []int64
	Data  []byte
}

// Elements is the product of the shape's dimensions. It returns an error if a
// dimension is negative or the product exceeds 2^40.
func Elements(shape []int64) (int64, error) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		if d != 0 && n > (1<<40)/d {
			return 0, fmt.Errorf("shape %v is too large", shape)
		}
		n *= d
	}
	return n, nil
}
