package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"sync"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Weights reads the weights of a model by range, wherever they are: within the model, in
// files of external data, or still to be generated. It is safe for concurrent use.
type Weights struct {
	model *Model
	mu    sync.Mutex
	files map[string]*os.File
	// numbers are the bytes of last, which the model holds as protobuf's numbers.
	last    *onnxpb.TensorProto
	numbers []byte
}

// OpenWeights makes a reader of the model's weights. The caller closes it.
func (m *Model) OpenWeights() *Weights {
	return &Weights{model: m, files: make(map[string]*os.File)}
}

// Close closes the files.
func (w *Weights) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, f := range w.files {
		errs = append(errs, f.Close())
	}
	clear(w.files)
	return errors.Join(errs...)
}

// ReadWeight fills b with the bytes of a weight of the model from an offset on, row by row
// and little-endian.
func (w *Weights) ReadWeight(t *onnxpb.TensorProto, b []byte, offset int64) error {
	if !isExternal(t) {
		raw := w.within(t)
		if offset < 0 || offset > int64(len(raw))-int64(len(b)) {
			return fmt.Errorf("weight %q has %d bytes; %d at %d are not there", t.GetName(), len(raw), len(b), offset)
		}
		copy(b, raw[offset:])
		return nil
	}
	if w.model.generated(t) {
		if size := rawSize(t); offset < 0 || offset > size-int64(len(b)) {
			return fmt.Errorf("weight %q has %d bytes; %d at %d are not there", t.GetName(), size, len(b), offset)
		}
		w.model.generate(b, t, offset)
		return nil
	}
	f, err := w.file(t)
	if err != nil {
		return err
	}
	start, err := strconv.ParseInt(externalValue(t, "offset"), 10, 64)
	if err != nil && externalValue(t, "offset") != "" {
		return fmt.Errorf("%w: weight %q has the offset %q", ErrExternalData, t.GetName(), externalValue(t, "offset"))
	}
	if length, given, err := externalLength(t); err != nil || given && offset+int64(len(b)) > length {
		return errors.Join(err, fmt.Errorf("%w: weight %q has %d bytes; %d at %d are not there", ErrExternalData, t.GetName(), length, len(b), offset))
	}
	if _, err := f.ReadAt(b, start+offset); err != nil && !(errors.Is(err, io.EOF) && len(b) == 0) {
		return fmt.Errorf("%w: weight %q: %w", ErrExternalData, t.GetName(), err)
	}
	return nil
}

// within are the bytes of a weight within the model.
func (w *Weights) within(t *onnxpb.TensorProto) []byte {
	if t.GetRawData() != nil {
		return t.GetRawData()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != t {
		w.last, w.numbers = t, bytesOf(t)
	}
	return w.numbers
}

func (w *Weights) file(t *onnxpb.TensorProto) (*os.File, error) {
	name := externalValue(t, "location")
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.files[name]; f != nil {
		return f, nil
	}
	f, err := openBeside(w.model.file, name)
	if err != nil {
		return nil, fmt.Errorf("weight %q: %w", t.GetName(), err)
	}
	w.files[name] = f
	return f, nil
}

// externalLength is the size that a weight's entry gives, and whether it gives one.
func externalLength(t *onnxpb.TensorProto) (n int64, given bool, err error) {
	text := externalValue(t, "length")
	if text == "" {
		return 0, false, nil
	}
	if n, err = strconv.ParseInt(text, 10, 64); err != nil || n < 0 {
		return 0, true, fmt.Errorf("%w: weight %q has the length %q", ErrExternalData, t.GetName(), text)
	}
	return n, true, nil
}

// elementBits are the sizes of elements without an Open Inference name, by their code:
// complex numbers, and the types of less than a byte that newer versions of ONNX have.
var elementBits = map[int32]int64{14: 64, 15: 128, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4}

// WeightBytes is the size of a weight's elements, from its type and dimensions; 0 for
// strings and unknown types.
func WeightBytes(t *onnxpb.TensorProto) int64 {
	bits := 8 * int64(ElementType(t).Size())
	if bits == 0 {
		bits = elementBits[t.GetDataType()]
	}
	n, err := tensor.Elements(t.GetDims())
	if err != nil {
		return 0
	}
	return (n*bits + 7) / 8
}

// bytesOf are protobuf's numbers as bytes, little-endian.
func bytesOf(t *onnxpb.TensorProto) []byte {
	var b []byte
	order := binary.LittleEndian
	switch size := ElementType(t).Size(); {
	case t.GetFloatData() != nil:
		for _, v := range t.GetFloatData() {
			b = order.AppendUint32(b, math.Float32bits(v))
		}
	case t.GetDoubleData() != nil:
		for _, v := range t.GetDoubleData() {
			b = order.AppendUint64(b, math.Float64bits(v))
		}
	case t.GetInt64Data() != nil:
		for _, v := range t.GetInt64Data() {
			b = order.AppendUint64(b, uint64(v))
		}
	case t.GetUint64Data() != nil:
		for _, v := range t.GetUint64Data() {
			if size == 4 {
				b = order.AppendUint32(b, uint32(v))
			} else {
				b = order.AppendUint64(b, v)
			}
		}
	default:
		for _, v := range t.GetInt32Data() {
			switch size {
			case 1:
				b = append(b, byte(v))
			case 2:
				b = order.AppendUint16(b, uint16(v))
			default:
				b = order.AppendUint32(b, uint32(v))
			}
		}
	}
	return b
}
