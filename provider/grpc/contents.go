package grpc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/provider/web"
)

// The fields of InferTensorContents with elements of other forms than variable-length integers.
const (
	boolContents  = 1
	fp32Contents  = 6
	fp64Contents  = 7
	bytesContents = 8
)

// contentsFields are the fields of InferTensorContents by datatype. Others have raw elements only.
var contentsFields = map[string]protowire.Number{
	"BOOL": boolContents, "INT8": 2, "INT16": 2, "INT32": 2, "INT64": 3, "UINT8": 4, "UINT16": 4, "UINT32": 4, "UINT64": 5,
	"FP32": fp32Contents, "FP64": fp64Contents, "BYTES": bytesContents,
}

// eachElements calls each for the fields of typed contents, which must be those of a datatype.
func eachElements(datatype string, contents []byte, each func(f field) error) error {
	wanted, ok := contentsFields[datatype]
	if !ok && len(contents) > 0 {
		return fmt.Errorf("the datatype %s has no typed contents; send raw_input_contents", web.Clip(datatype))
	}
	return eachField(contents, func(f field) error {
		if f.number != wanted {
			return fmt.Errorf("it has contents of another type than its datatype %s", web.Clip(datatype))
		}
		fixed := f.kind == protowire.Fixed32Type && wanted == fp32Contents || f.kind == protowire.Fixed64Type && wanted == fp64Contents
		variable := f.kind == protowire.VarintType && wanted < fp32Contents
		if f.kind != protowire.BytesType && !fixed && !variable {
			return errMessage
		}
		return each(f)
	})
}

// contentsSize returns how many bytes typed contents take as raw elements.
func contentsSize(datatype string, contents []byte) (size int, err error) {
	width := tensor.Type(datatype).Size()
	err = eachElements(datatype, contents, func(f field) error {
		switch {
		case f.number == bytesContents:
			size += 4 + len(f.bytes)
		case f.kind != protowire.BytesType:
			size += width
		case f.number >= fp32Contents && len(f.bytes)%width != 0:
			return errors.New("its contents are not whole elements")
		case f.number >= fp32Contents:
			size += len(f.bytes)
		default:
			for _, b := range f.bytes {
				if b < 0x80 { // The last byte of a number.
					size += width
				}
			}
		}
		return nil
	})
	return size, err
}

// appendElements appends typed contents as raw elements.
func appendElements(to []byte, datatype string, contents []byte) ([]byte, error) {
	err := eachElements(datatype, contents, func(f field) error {
		switch {
		case f.number == bytesContents:
			to = binary.LittleEndian.AppendUint32(to, uint32(len(f.bytes)))
			to = append(to, f.bytes...)
		case f.kind == protowire.Fixed32Type:
			to = binary.LittleEndian.AppendUint32(to, uint32(f.bits))
		case f.kind == protowire.Fixed64Type:
			to = binary.LittleEndian.AppendUint64(to, f.bits)
		case f.number >= fp32Contents:
			to = append(to, f.bytes...)
		default:
			return f.eachVarint(func(v uint64) (err error) {
				to, err = appendInteger(to, datatype, v)
				return err
			})
		}
		return nil
	})
	return to, err
}

// appendInteger appends an integer or a bool as a raw element.
func appendInteger(to []byte, datatype string, v uint64) ([]byte, error) {
	width := tensor.Type(datatype).Size()
	if datatype == "BOOL" {
		return append(to, byte(protowire.EncodeBool(v != 0))), nil
	}
	unused := 64 - 8*width
	if signed := datatype[0] == 'I'; signed && int64(v)<<unused>>unused != int64(v) || !signed && v<<unused>>unused != v {
		return to, fmt.Errorf("it has an element that %s cannot have", datatype)
	}
	for range width {
		to = append(to, byte(v))
		v >>= 8
	}
	return to, nil
}

// contentsLength returns the size in bytes of the InferTensorContents of raw elements. It returns false if the datatype has
// no typed contents, or if the elements are not whole.
func contentsLength(datatype string, raw []byte) (size int, ok bool) {
	number, ok := contentsFields[datatype]
	switch {
	case !ok:
		return 0, false
	case number == bytesContents:
		for len(raw) > 0 {
			if len(raw) < 4 || uint64(binary.LittleEndian.Uint32(raw)) > uint64(len(raw)-4) {
				return 0, false
			}
			n := int(binary.LittleEndian.Uint32(raw))
			size += protowire.SizeTag(number) + protowire.SizeBytes(n)
			raw = raw[4+n:]
		}
		return size, true
	case len(raw)%tensor.Type(datatype).Size() != 0:
		return 0, false
	case isPlain(number):
		size = len(raw)
	default:
		size = packedSize(datatype, raw)
	}
	return protowire.SizeTag(number) + protowire.SizeBytes(size), true
}

// isPlain reports whether packed contents are the raw elements. A bool is 0 or 1 in both.
func isPlain(number protowire.Number) bool {
	return number == boolContents || number == fp32Contents || number == fp64Contents
}

// packedSize returns how many bytes raw integers take as variable-length ones: a negative one takes ten.
func packedSize(datatype string, raw []byte) (size int) {
	for width := tensor.Type(datatype).Size(); len(raw) > 0; raw = raw[width:] {
		size += protowire.SizeVarint(integerOf(raw[:width], datatype[0] == 'I'))
	}
	return size
}

// integerOf returns a raw integer as messages have it.
func integerOf(raw []byte, signed bool) (v uint64) {
	for at := len(raw) - 1; at >= 0; at-- {
		v = v<<8 | uint64(raw[at])
	}
	if unused := 64 - 8*len(raw); signed {
		v = uint64(int64(v<<unused) >> unused)
	}
	return v
}

// appendContents appends the InferTensorContents of raw elements, of which [contentsLength] is the size.
func appendContents(to []byte, datatype string, raw []byte) []byte {
	number := contentsFields[datatype]
	switch {
	case number == bytesContents:
		for len(raw) > 0 {
			n := 4 + int(binary.LittleEndian.Uint32(raw))
			to = appendBytes(to, number, raw[4:n])
			raw = raw[n:]
		}
		return to
	case isPlain(number):
		return appendBytes(to, number, raw)
	}
	to = protowire.AppendVarint(protowire.AppendTag(to, number, protowire.BytesType), uint64(packedSize(datatype, raw)))
	for width := tensor.Type(datatype).Size(); len(raw) > 0; raw = raw[width:] {
		to = protowire.AppendVarint(to, integerOf(raw[:width], datatype[0] == 'I'))
	}
	return to
}
