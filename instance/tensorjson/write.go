package tensorjson

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// ErrNotJSON is wrapped by errors for outputs that JSON cannot represent.
var ErrNotJSON = errors.New("JSON cannot represent it; request binary data")

// Writable returns an error that wraps [ErrNotJSON] for a type whose elements have no form in JSON.
func Writable(kind tensor.Type) error {
	if kind == tensor.FP16 || kind == tensor.BF16 {
		return fmt.Errorf("it is %s: %w", kind, ErrNotJSON)
	}
	return nil
}

// writer appends elements as JSON, one after the other.
type writer struct {
	kind tensor.Type
	// extended writes what TensorFlow Serving adds to JSON: NaN, Infinity and -Infinity, and
	// {"b64": "…"} for a string that is not UTF-8. Otherwise these are errors.
	extended bool
	// base64 writes every string as {"b64": "…"}.
	base64 bool
	// rest holds the elements that are still to be written.
	rest []byte
}

// AppendFlat appends a tensor's elements as one JSON array. NaN, infinities and strings that are
// not UTF-8 are errors that wrap [ErrNotJSON].
func AppendFlat(to []byte, t tensor.Tensor) ([]byte, error) {
	w := writer{kind: t.Type, rest: t.Data}
	return w.row(to, -1)
}

// AppendNested appends a tensor's elements as arrays nested like its shape, in the form of
// TensorFlow Serving. NaN and infinities are the words NaN, Infinity and -Infinity. A string that
// is not UTF-8 is {"b64": "…"}, and so is each string of a tensor whose name ends in _bytes.
func AppendNested(to []byte, t tensor.Tensor) ([]byte, error) {
	w := writer{kind: t.Type, extended: true, base64: strings.HasSuffix(t.Name, "_bytes"), rest: t.Data}
	return w.nested(to, t.Shape)
}

func (w *writer) nested(to []byte, shape []int64) (_ []byte, err error) {
	switch len(shape) {
	case 0:
		return w.element(to)
	case 1:
		return w.row(to, shape[0])
	}
	to = append(to, '[')
	for i := range shape[0] {
		if i > 0 {
			to = append(to, ',')
		}
		if to, err = w.nested(to, shape[1:]); err != nil {
			return to, err
		}
	}
	return append(to, ']'), nil
}

// row appends an array of n elements, of all the rest if n is negative.
func (w *writer) row(to []byte, n int64) (_ []byte, err error) {
	to = append(to, '[')
	for i := int64(0); i < n || n < 0 && len(w.rest) > 0; i++ {
		if i > 0 {
			to = append(to, ',')
		}
		if to, err = w.element(to); err != nil {
			return to, err
		}
	}
	return append(to, ']'), nil
}

// element appends the next element.
func (w *writer) element(to []byte) ([]byte, error) {
	if w.kind == tensor.Bytes {
		s, rest, err := tensor.CutString(w.rest)
		if err != nil {
			return to, err
		}
		w.rest = rest
		return w.text(to, s)
	}
	size := w.kind.Size()
	if size > len(w.rest) {
		return to, errors.New("it has fewer elements than its shape")
	}
	from := w.rest[:size]
	w.rest = w.rest[size:]
	switch w.kind {
	case tensor.FP32:
		return w.float(to, float64(math.Float32frombits(binary.LittleEndian.Uint32(from))), 32)
	case tensor.FP64:
		return w.float(to, math.Float64frombits(binary.LittleEndian.Uint64(from)), 64)
	case tensor.Bool:
		return strconv.AppendBool(to, from[0] != 0), nil
	case tensor.Uint8:
		return strconv.AppendUint(to, uint64(from[0]), 10), nil
	case tensor.Uint16:
		return strconv.AppendUint(to, uint64(binary.LittleEndian.Uint16(from)), 10), nil
	case tensor.Uint32:
		return strconv.AppendUint(to, uint64(binary.LittleEndian.Uint32(from)), 10), nil
	case tensor.Uint64:
		return strconv.AppendUint(to, binary.LittleEndian.Uint64(from), 10), nil
	case tensor.Int8:
		return strconv.AppendInt(to, int64(int8(from[0])), 10), nil
	case tensor.Int16:
		return strconv.AppendInt(to, int64(int16(binary.LittleEndian.Uint16(from))), 10), nil
	case tensor.Int32:
		return strconv.AppendInt(to, int64(int32(binary.LittleEndian.Uint32(from))), 10), nil
	case tensor.Int64:
		return strconv.AppendInt(to, int64(binary.LittleEndian.Uint64(from)), 10), nil
	}
	return to, fmt.Errorf("it is %s: %w", w.kind, ErrNotJSON)
}

func (w *writer) float(to []byte, f float64, bits int) ([]byte, error) {
	if !math.IsNaN(f) && !math.IsInf(f, 0) {
		return strconv.AppendFloat(to, f, 'g', -1, bits), nil
	}
	switch {
	case !w.extended:
		return to, fmt.Errorf("it holds %g: %w", f, ErrNotJSON)
	case f > 0:
		return append(to, "Infinity"...), nil
	case f < 0:
		return append(to, "-Infinity"...), nil
	}
	return append(to, "NaN"...), nil
}

func (w *writer) text(to, s []byte) ([]byte, error) {
	valid := utf8.Valid(s)
	switch {
	case w.base64 || w.extended && !valid:
		to = append(to, `{"b64":"`...)
		to = base64.StdEncoding.AppendEncode(to, s)
		return append(to, `"}`...), nil
	case !valid:
		return to, fmt.Errorf("it holds a string that is not UTF-8: %w", ErrNotJSON)
	}
	to = append(to, '"')
	from := 0
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		to = append(to, s[from:i]...)
		if from = i + 1; c < ' ' {
			to = fmt.Appendf(to, `\u%04x`, c)
		} else {
			to = append(to, '\\', c)
		}
	}
	return append(append(to, s[from:]...), '"'), nil
}
