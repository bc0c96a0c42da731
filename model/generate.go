package model

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Generator fills b with a part of a weight's data in ONNX's raw form: the bytes from an
// offset on of its elements, row by row and little-endian. It gives the same bytes every
// time, and several goroutines may call it at once.
type Generator func(b []byte, weight *onnxpb.TensorProto, offset int64)

// Generated makes a model whose large weights exist only in the files that it is written
// to. The message marks each of them as external data and names no file: it has a type,
// dimensions and no data. [Model.Graph] needs no more. [Model.Write] and
// [Model.WriteFile] generate one weight after the other, so writing a model of gigabytes
// takes little memory. The model owns the message from then on. The errors are those of
// [Read]; a weight is refused if its type and dimensions do not give its size.
func Generated(p *onnxpb.ModelProto, generate Generator) (*Model, error) {
	if err := check(p); err != nil {
		return nil, err
	}
	for _, t := range p.GetGraph().GetInitializer() {
		if _, err := tensor.Elements(t.GetDims()); isExternal(t) && (err != nil || ElementType(t).Size() == 0) {
			return nil, fmt.Errorf("%w: weight %q has the type %d and the dimensions %v, which do not give its size", ErrNotONNX, t.GetName(), t.GetDataType(), t.GetDims())
		}
	}
	return &Model{proto: p, generate: generate}, nil
}

// generated reports whether the weight's data is generated when the model is written.
func (m *Model) generated(t *onnxpb.TensorProto) bool { return m.generate != nil && isExternal(t) }

// rawSize is the size in bytes of a generated weight's data. [Generated] has checked that
// it is known.
func rawSize(t *onnxpb.TensorProto) int64 {
	n, _ := tensor.Elements(t.GetDims())
	return n * int64(ElementType(t).Size())
}

// writeData generates a weight's data straight into the buffer, piece by piece.
func (m *Model) writeData(out *bufio.Writer, t *onnxpb.TensorProto) error {
	size := rawSize(t)
	for offset := int64(0); offset < size; {
		if out.Available() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		piece := out.AvailableBuffer()[:min(size-offset, int64(out.Available()))]
		m.generate(piece, t, offset)
		if _, err := out.Write(piece); err != nil {
			return err
		}
		offset += int64(len(piece))
	}
	return nil
}

// undefined is a generated weight without its data and without the mark for it.
func undefined(t *onnxpb.TensorProto) *onnxpb.TensorProto {
	return &onnxpb.TensorProto{Name: t.Name, Dims: t.Dims, DataType: t.DataType}
}

// alignment is the offset's unit of a weight in a file of weights, in bytes. ONNX
// recommends a page, so that engines can map the file.
const alignment = 4096

// apart lays out the generated weights in a file of that name. It returns the model as it
// is beside that file.
func (m *Model) apart(location string) *Model {
	shell, body := withoutWeights(m.proto)
	end := int64(0)
	for _, t := range m.proto.GetGraph().GetInitializer() {
		if m.generated(t) {
			offset, length := aligned(end), rawSize(t)
			end = offset + length
			t = undefined(t)
			t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
			t.ExternalData = []*onnxpb.StringStringEntryProto{
				entry("location", location),
				entry("offset", strconv.FormatInt(offset, 10)),
				entry("length", strconv.FormatInt(length, 10)),
			}
		}
		body.Initializer = append(body.Initializer, t)
	}
	shell.Graph = body
	return &Model{proto: shell}
}

func entry(key, value string) *onnxpb.StringStringEntryProto {
	return &onnxpb.StringStringEntryProto{Key: proto.String(key), Value: proto.String(value)}
}

func aligned(offset int64) int64 { return (offset + alignment - 1) / alignment * alignment }

// writeWeights writes the file that [Model.apart] lays out.
func (m *Model) writeWeights(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<20)
	end := int64(0)
	for _, t := range m.proto.GetGraph().GetInitializer() {
		if !m.generated(t) {
			continue
		}
		offset := aligned(end)
		out.Write(make([]byte, offset-end))
		if err := m.writeData(out, t); err != nil {
			return err
		}
		end = offset + rawSize(t)
	}
	return out.Flush()
}

// weightSize is the encoded size of a weight in the model's own file.
func (m *Model) weightSize(t *onnxpb.TensorProto) int64 {
	if !m.generated(t) {
		return int64(proto.Size(t))
	}
	raw := rawSize(t)
	return int64(proto.Size(undefined(t))) + int64(protowire.SizeTag(rawField)) + int64(protowire.SizeVarint(uint64(raw))) + raw
}

// writeWeight writes a weight into the model's own file. It returns b, which it uses as
// a buffer.
func (m *Model) writeWeight(out *bufio.Writer, t *onnxpb.TensorProto, b []byte) ([]byte, error) {
	b = appendLength(b[:0], initializerField, m.weightSize(t))
	whole := t
	if m.generated(t) {
		whole = undefined(t)
	}
	b, err := deterministic.MarshalAppend(b, whole)
	if err != nil {
		return b, fmt.Errorf("encode weight %q: %w", t.GetName(), err)
	}
	if m.generated(t) {
		b = appendLength(b, rawField, rawSize(t))
	}
	if _, err := out.Write(b); err != nil || !m.generated(t) {
		return b, err
	}
	return b, m.writeData(out, t)
}
