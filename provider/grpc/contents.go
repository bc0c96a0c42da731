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

// appendContents appends the InferTensorContents of raw elements. It returns false if the datatype has no typed
// contents, or if the elements are not whole.
func appendContents(to []byte, datatype string, raw []byte) ([]byte, bool) {
	number, ok := contentsFields[datatype]
	switch {
	case !ok:
		return to, false
	case number == bytesContents:
		for len(raw) > 0 {
			if len(raw) < 4 || uint64(binary.LittleEndian.Uint32(raw)) > uint64(len(raw)-4) {
				return to, false
			}
			n := 4 + int(binary.LittleEndian.Uint32(raw))
			to = appendBytes(to, number, raw[4:n])
			raw = raw[n:]
		}
		return to, true
	case number >= fp32Contents || number == boolContents: // A bool is 0 or 1, as in the message.
		return appendBytes(to, number, raw), len(raw)%tensor.Type(datatype).Size() == 0
	}
	width := tensor.Type(datatype).Size()
	if len(raw)%width != 0 {
		return to, false
	}
	packed := make([]byte, 0, len(raw))
	for ; len(raw) > 0; raw = raw[width:] {
		var v uint64
		for at := width - 1; at >= 0; at-- {
			v = v<<8 | uint64(raw[at])
		}
		if unused := 64 - 8*width; datatype[0] == 'I' {
			v = uint64(int64(v<<unused) >> unused)
		}
		packed = protowire.AppendVarint(packed, v)
	}
	return appendBytes(to, number, packed), true
}
