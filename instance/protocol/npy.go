package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// NPYContentType is the media type of a .npy file.
const NPYContentType = "application/x-npy"

const (
	magic = "\x93NUMPY"
	// maxHeader is the maximum length of a header's text in bytes. NumPy's own readers
	// have a similar limit.
	maxHeader = 10000
	// maxDimensions is the maximum number of an array's dimensions, as in NumPy.
	maxDimensions = 64
	// alignment is the multiple in bytes at which an array's elements begin.
	alignment = 64
)

// isNPY reports whether a body begins like a .npy file.
func isNPY(body []byte) bool { return bytes.HasPrefix(body, []byte(magic)) }

var (
	descrPattern   = regexp.MustCompile(`['"]descr['"]\s*:\s*['"]([^'"]*)['"]`)
	fortranPattern = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	shapePattern   = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([^)]*)\)`)
)

// DecodeNPY decodes a .npy file. The tensor has no name, and its data alias the file.
func DecodeNPY(file []byte) (tensor.Tensor, error) {
	header, data, err := split(file)
	if err != nil {
		return tensor.Tensor{}, err
	}
	descr := descrPattern.FindSubmatch(header)
	fortran := fortranPattern.FindSubmatch(header)
	shape := shapePattern.FindSubmatch(header)
	if descr == nil || fortran == nil || shape == nil {
		return tensor.Tensor{}, errors.New("the .npy header must have descr, fortran_order and shape; arrays of records are not supported")
	}
	t := tensor.Tensor{Data: data}
	if t.Type, err = kind(string(descr[1])); err != nil {
		return tensor.Tensor{}, err
	}
	if t.Shape, err = dimensions(string(shape[1])); err != nil {
		return tensor.Tensor{}, err
	}
	if string(fortran[1]) == "True" && len(t.Shape) > 1 {
		return tensor.Tensor{}, errors.New("the array is stored column by column (fortran_order); save numpy.ascontiguousarray(array)")
	}
	n, err := tensor.Elements(t.Shape)
	if err != nil {
		return tensor.Tensor{}, err
	}
	if need := n * int64(t.Type.Size()); need != int64(len(data)) {
		return tensor.Tensor{}, fmt.Errorf("the .npy header says %s of shape (%s), which takes %d bytes, but %d follow",
			descr[1], shape[1], need, len(data))
	}
	return t, nil
}

// split splits a file into the text of its header and its elements.
func split(file []byte) (header, data []byte, err error) {
	if !isNPY(file) || len(file) < 12 {
		return nil, nil, errors.New("it is not a .npy file")
	}
	var length, at int
	switch version := file[6]; version {
	case 1:
		length, at = int(binary.LittleEndian.Uint16(file[8:])), 10
	case 2, 3:
		length, at = int(binary.LittleEndian.Uint32(file[8:])), 12
	default:
		return nil, nil, fmt.Errorf("it is a .npy file of version %d; use version 1, 2 or 3", version)
	}
	if length < 0 || length > maxHeader || at+length > len(file) {
		return nil, nil, fmt.Errorf("the .npy header says that it has %d bytes; the file has %d, and the limit is %d", length, len(file), maxHeader)
	}
	data = file[at+length:]
	return file[at : at+length], data[:len(data):len(data)], nil
}

func dimensions(text string) ([]int64, error) {
	shape := []int64{}
	text = strings.TrimSuffix(strings.TrimSpace(text), ",")
	if text == "" {
		return shape, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(part), "L"), 10, 64)
		if err != nil || n < 0 || len(shape) == maxDimensions {
			return nil, fmt.Errorf("the .npy header has the shape (%.100s), which is invalid", text)
		}
		shape = append(shape, n)
	}
	return shape, nil
}

// kinds maps NumPy's names of element types, without the byte order.
var kinds = map[string]tensor.Type{
	"b1": tensor.Bool, "u1": tensor.Uint8, "i1": tensor.Int8, "i2": tensor.Int16, "u2": tensor.Uint16,
	"i4": tensor.Int32, "u4": tensor.Uint32, "i8": tensor.Int64, "u8": tensor.Uint64,
	"f2": tensor.FP16, "f4": tensor.FP32, "f8": tensor.FP64,
}

func kind(descr string) (tensor.Type, error) {
	if descr == "" {
		return "", errors.New("the .npy header has an empty descr")
	}
	order, name := descr[0], descr[1:]
	t, ok := kinds[name]
	switch {
	case !ok:
		return "", fmt.Errorf("the array's dtype is %.40q, which no model takes; convert it with array.astype", descr)
	case order == '>' && t.Size() > 1:
		return "", fmt.Errorf("the array's dtype is %q, big endian; save array.astype(%q)", descr, "<"+name)
	case order != '<' && order != '|' && order != '>' && order != '=':
		return "", fmt.Errorf("the array's dtype is %.40q, which no model takes; convert it with array.astype", descr)
	}
	return t, nil
}

// AppendNPY appends a tensor as a .npy file.
func AppendNPY(to []byte, t tensor.Tensor) ([]byte, error) {
	descr := ""
	for name, k := range kinds {
		if k == t.Type {
			descr = "<" + name
		}
	}
	if descr == "" {
		return to, fmt.Errorf("NumPy has no name for elements of %s", t.Type)
	}
	if t.Type.Size() == 1 {
		descr = "|" + descr[1:]
	}
	shape := ""
	for _, d := range t.Shape {
		shape += strconv.FormatInt(d, 10) + ", "
	}
	if len(t.Shape) > 1 {
		shape = strings.TrimSuffix(shape, ", ")
	}
	text := "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + strings.TrimSuffix(shape, " ") + "), }"
	const before = len(magic) + 4
	pad := alignment - (before+len(text)+1)%alignment
	length := len(text) + pad + 1
	to = append(to, magic...)
	to = append(to, 1, 0, byte(length), byte(length>>8))
	to = append(to, text...)
	to = append(to, strings.Repeat(" ", pad)...)
	to = append(to, '\n')
	return append(to, t.Data...), nil
}
