package grpc

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/provider/web"
)

var errMessage = web.BadRequest(errors.New("the message is not one of the method's type"))

// field is one field of a message. bits has a number, bytes what is length-delimited; bytes alias the
// message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	bits   uint64
	bytes  []byte
}

// eachField calls each for the fields of a message in their order.
func eachField(m []byte, each func(f field) error) error {
	for len(m) > 0 {
		var f field
		var n int
		if f.number, f.kind, n = protowire.ConsumeTag(m); n < 0 {
			return errMessage
		}
		m = m[n:]
		switch f.kind {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(m)
		case protowire.VarintType:
			f.bits, n = protowire.ConsumeVarint(m)
		case protowire.Fixed32Type:
			var bits uint32
			bits, n = protowire.ConsumeFixed32(m)
			f.bits = uint64(bits)
		case protowire.Fixed64Type:
			f.bits, n = protowire.ConsumeFixed64(m)
		default:
			n = protowire.ConsumeFieldValue(f.number, f.kind, m)
		}
		if n < 0 {
			return errMessage
		}
		m = m[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// eachVarint calls each for a repeated number's elements in one field, packed or not.
func (f field) eachVarint(each func(v uint64) error) error {
	if f.kind == protowire.VarintType {
		return each(f.bits)
	}
	for m := f.bytes; len(m) > 0; {
		v, n := protowire.ConsumeVarint(m)
		if n < 0 {
			return errMessage
		}
		m = m[n:]
		if err := each(v); err != nil {
			return err
		}
	}
	return nil
}

// appendString appends a string, which proto3 leaves out if it is empty.
func appendString(to []byte, number protowire.Number, s string) []byte {
	if s == "" {
		return to
	}
	return protowire.AppendString(protowire.AppendTag(to, number, protowire.BytesType), s)
}

// appendBytes appends a message or bytes.
func appendBytes(to []byte, number protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), m)
}

// appendNumber appends a bool, an enum or an integer.
func appendNumber(to []byte, number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(to, number, protowire.VarintType), v)
}

// appendShape appends a repeated int64.
func appendShape(to []byte, number protowire.Number, shape []int64) []byte {
	var packed []byte
	for _, size := range shape {
		packed = protowire.AppendVarint(packed, uint64(size))
	}
	return appendBytes(to, number, packed)
}

// namesOf returns the strings of a message's fields by their numbers, the last one of each.
func namesOf(m []byte, numbers ...protowire.Number) ([]string, error) {
	found := make([]string, len(numbers))
	err := eachField(m, func(f field) error {
		if at := slices.Index(numbers, f.number); at >= 0 && f.kind == protowire.BytesType {
			found[at] = string(f.bytes)
		}
		return nil
	})
	return found, err
}
