package tensorjson

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// Values collects the elements of one input from nested JSON arrays and determines its
// shape.
type Values struct {
	// Type is the type of the elements, Data their bytes.
	Type tensor.Type
	Data []byte
	// Extended takes what TensorFlow Serving adds to JSON: the numbers NaN, Infinity (or Inf) and
	// -Infinity (or -Inf), and {"b64": "…"} for a string.
	Extended bool
	// Limit is the maximum number of elements, 0 for any number. Read fails at the first
	// element above it, so a long body takes no more memory than the model needs.
	Limit int64
	// Shape[d] is the length of the arrays at depth d, -1 before the end of the first.
	Shape []int64
	// leaf is the depth of the elements, -1 before the first.
	leaf int
	// taken is the number of elements read.
	taken int64
}

// NewValues returns an empty collection of elements of one type.
func NewValues(kind tensor.Type) *Values { return &Values{Type: kind, leaf: -1} }

var errRagged = errors.New("the arrays differ in length or depth")

// Reserve allocates memory for a number of elements in a text of the given length.
func (v *Values) Reserve(elements int64, length int) {
	// An element and its comma take at least two bytes. A shape that claims more elements
	// than the text can hold gets no memory.
	if elements <= 0 || elements > int64(length)/2+1 {
		return
	}
	if v.Type == tensor.Bytes {
		v.Data = make([]byte, 0, int(elements)*2+length) // Four bytes of length replace two quotes.
		return
	}
	v.Data = make([]byte, 0, int(elements)*v.Type.Size())
}

// Read consumes an element or nested arrays of elements at the given depth of the input.
func (v *Values) Read(r *Reader, depth int) error {
	if r.Peek() != '[' {
		if v.leaf < 0 {
			v.leaf = depth
		}
		if v.leaf != depth {
			return errRagged
		}
		return v.element(r)
	}
	if v.leaf >= 0 && depth >= v.leaf {
		return errRagged
	}
	for len(v.Shape) <= depth {
		v.Shape = append(v.Shape, -1)
	}
	if v.flat(r) {
		return v.numbers(r, depth)
	}
	var n int64
	err := r.Array(func() error {
		n++
		return v.Read(r, depth+1)
	})
	if err != nil {
		return err
	}
	return v.Length(depth, n)
}

// Length records that an array at this depth has n elements.
func (v *Values) Length(depth int, n int64) error {
	for len(v.Shape) <= depth {
		v.Shape = append(v.Shape, -1)
	}
	if v.Shape[depth] >= 0 && v.Shape[depth] != n {
		return errRagged
	}
	v.Shape[depth] = n
	return nil
}

// element consumes one number, true or false for a Bool, or a string.
func (v *Values) element(r *Reader) error {
	if v.taken++; v.Limit > 0 && v.taken > v.Limit {
		return fmt.Errorf("it has more than %d elements", v.Limit)
	}
	switch v.Type {
	case tensor.Bool:
		return v.boolean(r)
	case tensor.Bytes:
		return v.text(r)
	}
	if v.Extended && v.special(r) {
		return nil
	}
	if c := r.Peek(); c != '-' && c-'0' > 9 {
		text, err := r.Raw()
		if err != nil {
			return err
		}
		return fmt.Errorf("%.40q is not a number", text)
	}
	text, err := r.number()
	if err != nil {
		return err
	}
	bits := v.Type.Size() * 8
	switch v.Type {
	case tensor.FP32, tensor.FP64:
		f, err := strconv.ParseFloat(text, bits)
		if err != nil {
			return outside(text, v.Type)
		}
		if bits == 32 {
			v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(float32(f)))
		} else {
			v.Data = binary.LittleEndian.AppendUint64(v.Data, math.Float64bits(f))
		}
		return nil
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		u, err := strconv.ParseUint(text, 10, bits)
		if err != nil {
			return outside(text, v.Type)
		}
		v.Data = appendWhole(v.Data, bits/8, u)
		return nil
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		i, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return outside(text, v.Type)
		}
		v.Data = appendWhole(v.Data, bits/8, uint64(i))
		return nil
	}
	return fmt.Errorf("%s has no JSON form; use the binary extension of the Open Inference Protocol", v.Type)
}

// outside is the error of a number that a type does not have.
func outside(text string, kind tensor.Type) error {
	if kind != tensor.FP32 && kind != tensor.FP64 && strings.ContainsAny(text, ".eE") {
		return fmt.Errorf("%.40s is not written as an integer, as %s needs it", text, kind)
	}
	return fmt.Errorf("%.40s is not in the range of %s", text, kind)
}

func (v *Values) boolean(r *Reader) error {
	switch {
	case r.literal("true"):
		v.Data = append(v.Data, 1)
	case r.literal("false"):
		v.Data = append(v.Data, 0)
	default:
		text, err := r.Raw()
		if err != nil {
			return err
		}
		return fmt.Errorf("%.40q is neither true nor false", text)
	}
	return nil
}

// appendWhole appends the lowest size bytes of a number, little endian.
func appendWhole(to []byte, size int, u uint64) []byte {
	switch size {
	case 1:
		return append(to, byte(u))
	case 2:
		return binary.LittleEndian.AppendUint16(to, uint16(u))
	case 4:
		return binary.LittleEndian.AppendUint32(to, uint32(u))
	}
	return binary.LittleEndian.AppendUint64(to, u)
}
