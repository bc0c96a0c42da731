package main

import (
	"fmt"
	"strconv"
	"strings"
	"unsafe"
)

// info describes a tensor. Shape is the shape of one row, with -1 for an open dimension.
type info struct {
	Name  string  `json:"name"`
	Type  string  `json:"datatype"`
	Shape []int64 `json:"shape"`
}

// kind is a type of elements.
type kind struct {
	// name is the type in Go, datatype the type in messages.
	name, datatype string
	// read turns data into a slice, and write turns such a slice into data; ok is false for
	// a value of another type.
	read  func(data []byte) any
	write func(values any) (data []byte, ok bool)
}

// kinds lists all types. Inputs and Outputs call half precision float16; Go has no such type
// and uses its bits, uint16.
var kinds = []kind{
	of[bool]("bool", "BOOL"),
	of[uint8]("uint8", "UINT8"), of[uint16]("uint16", "UINT16"), of[uint32]("uint32", "UINT32"), of[uint64]("uint64", "UINT64"),
	of[int8]("int8", "INT8"), of[int16]("int16", "INT16"), of[int32]("int32", "INT32"), of[int64]("int64", "INT64"),
	of[float32]("float32", "FP32"), of[float64]("float64", "FP64"), of[uint16]("float16", "FP16"),
}

// of returns the kind of a Go type. It copies no elements: messages have the memory layout of
// the processors that this runs on, little endian and contiguous.
func of[T any](name, datatype string) kind {
	size := int(unsafe.Sizeof(*new(T)))
	return kind{name: name, datatype: datatype,
		read: func(data []byte) any {
			if name == "bool" { // Go knows 0 and 1 only.
				for i, b := range data {
					data[i] = min(b, 1)
				}
			}
			return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(data))), len(data)/size)
		},
		write: func(values any) ([]byte, bool) {
			slice, ok := values.([]T)
			return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(slice))), len(slice)*size), ok
		}}
}

// decode turns a tensor's data into a slice.
func decode(datatype string, data []byte) (any, error) {
	for _, k := range kinds {
		if k.datatype == datatype {
			return k.read(data), nil
		}
	}
	return nil, fmt.Errorf("a tensor has the type %q", datatype)
}

// encode returns a slice's type and data.
func encode(values any) (datatype string, data []byte, err error) {
	for _, k := range kinds {
		if data, ok := k.write(values); ok {
			return k.datatype, data, nil
		}
	}
	return "", nil, fmt.Errorf("as %T; a tensor is a slice of %s", values, names())
}

func names() string {
	var all []string
	for _, k := range kinds[:len(kinds)-1] {
		all = append(all, k.name)
	}
	return strings.Join(all, ", ")
}

// infos parses the entries of Inputs or Outputs: "name type", or "name type[2,3]" with ? for
// an open dimension.
func infos(variable string, texts []string) ([]info, error) {
	var all []info
	for _, text := range texts {
		i, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q %w; write a name, a type and the shape of a row, as \"image uint8[224,224,3]\"", variable, text, err)
		}
		all = append(all, i)
	}
	return all, nil
}

func parse(text string) (info, error) {
	at := strings.LastIndexByte(text, ' ')
	if at < 1 {
		return info{}, fmt.Errorf("has no type")
	}
	name, typed := text[:at], text[at+1:]
	typed, dimensions, shaped := strings.Cut(typed, "[")
	i := info{Name: name, Shape: []int64{}}
	for _, k := range kinds {
		if k.name == typed {
			i.Type = k.datatype
		}
	}
	if i.Type == "" {
		return info{}, fmt.Errorf("has the type %q, which is none of %s and float16", typed, names())
	}
	if !shaped {
		return i, nil
	}
	dimensions, closed := strings.CutSuffix(dimensions, "]")
	if !closed {
		return info{}, fmt.Errorf("has a shape without an end")
	}
	for _, d := range strings.Split(dimensions, ",") {
		if d == "?" {
			i.Shape = append(i.Shape, -1)
			continue
		}
		n, err := strconv.ParseInt(d, 10, 32)
		if err != nil || n < 1 {
			return info{}, fmt.Errorf("has the dimension %q, which is neither a number from 1 on nor ?", d)
		}
		i.Shape = append(i.Shape, n)
	}
	return i, nil
}
