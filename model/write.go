package model

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// ErrTooLarge: the model is larger than a protobuf message can be.
var ErrTooLarge = errors.New("more than the 2 GiB of a protobuf message")

// maxInside is the size in bytes up to which [Model.WriteFile] writes generated weights
// into the model's own file. A reader has to parse that file whole, so it holds the
// weights twice.
const maxInside = 1 << 30

// WriteFile writes the model as an ONNX file, whole or not at all: it writes a file
// beside path and renames it. A generated model of more than 1 GiB becomes two files
// ([Model.DataFile]). They are renamed one after the other, the weights first; a reader
// of an older model at path may find the new weights in between. A model that was read
// with external data can be written only into the directory that it was read from. The
// error for a model beyond 2 GiB that is not generated wraps [ErrTooLarge].
func (m *Model) WriteFile(path string) error { return m.writeFiles(path, m.DataFile(path)) }

// DataFile is the second file that [Model.WriteFile] writes for a path. It holds the
// large weights as ONNX's external data, each at a multiple of 4096 bytes. It is "" for a
// model that is one file.
func (m *Model) DataFile(path string) string {
	if m.generate == nil || m.size() <= maxInside {
		return ""
	}
	return path + ".data"
}

// writeFiles writes the model with the large weights in data, or in one file if data is
// "".
func (m *Model) writeFiles(path, data string) error {
	if names := m.ExternalFiles(); len(names) > 0 && filepath.Dir(m.file) != filepath.Dir(path) {
		return fmt.Errorf("write model %s: %w: the weights are in %q in %s; copy the files instead", path, ErrExternalData, names[0], filepath.Dir(m.file))
	}
	files := []staged{{path, m.Write}}
	if data != "" {
		files = []staged{{data, m.writeWeights}, {path, m.apart(filepath.Base(data)).Write}}
	}
	if err := stage(files); err != nil {
		return fmt.Errorf("write model %s: %w", path, err)
	}
	return nil
}

// staged is a file that is to be written.
type staged struct {
	path  string
	write func(io.Writer) error
}

// stage writes files beside their paths and, when all are complete, renames them in their
// order.
func stage(files []staged) error {
	var names []string
	defer func() {
		for _, name := range names {
			os.Remove(name)
		}
	}()
	for _, s := range files {
		f, err := os.CreateTemp(filepath.Dir(s.path), "."+filepath.Base(s.path)+".*")
		if err != nil {
			return err
		}
		names = append(names, f.Name())
		err = s.write(f)
		if err == nil {
			err = f.Chmod(0o644)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	for i, s := range files {
		if err := os.Rename(names[i], s.path); err != nil {
			return err
		}
	}
	return nil
}

// deterministic gives the same model the same bytes.
var deterministic = proto.MarshalOptions{Deterministic: true}

// size is about the number of bytes that [Model.Write] writes.
func (m *Model) size() int64 {
	size := int64(0)
	for _, t := range m.proto.GetGraph().GetInitializer() {
		size += m.weightSize(t)
	}
	return size
}

// Write encodes the model with all its weights. It encodes one weight at a time, so a
// model of hundreds of megabytes is in memory once and not twice, and a generated model
// not at all. The error for a model beyond 2 GiB wraps [ErrTooLarge].
func (m *Model) Write(w io.Writer) error {
	shell, body := withoutWeights(m.proto)
	head, err := deterministic.Marshal(shell)
	if err != nil {
		return fmt.Errorf("encode model: %w", err)
	}
	rest, err := deterministic.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode graph: %w", err)
	}
	weights := m.proto.GetGraph().GetInitializer()
	size := int64(len(rest))
	for _, t := range weights {
		encoded := m.weightSize(t)
		size += int64(protowire.SizeTag(initializerField)+protowire.SizeVarint(uint64(encoded))) + encoded
	}
	head = append(head, appendLength(nil, graphField, size)...)
	if whole := int64(len(head)) + size; whole > math.MaxInt32 {
		return fmt.Errorf("encode model: its %d bytes are %w; put the weights into files of their own", whole, ErrTooLarge)
	}
	out := bufio.NewWriterSize(w, 1<<20)
	out.Write(head)
	out.Write(rest)
	var b []byte
	for _, t := range weights {
		if b, err = m.writeWeight(out, t, b); err != nil {
			return err
		}
	}
	return out.Flush()
}

// withoutWeights returns shallow copies: the model without its graph and the
// graph without its initialisers.
func withoutWeights(p *onnxpb.ModelProto) (*onnxpb.ModelProto, *onnxpb.GraphProto) {
	shell, body := new(onnxpb.ModelProto), new(onnxpb.GraphProto)
	copyFields(shell.ProtoReflect(), p.ProtoReflect(), graphField)
	copyFields(body.ProtoReflect(), p.GetGraph().ProtoReflect(), initializerField)
	return shell, body
}

func copyFields(to, from protoreflect.Message, without protowire.Number) {
	from.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Number() != without {
			to.Set(f, v)
		}
		return true
	})
	to.SetUnknown(from.GetUnknown())
}

// appendLength appends what is before a field of that many bytes.
func appendLength(b []byte, field protowire.Number, size int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))
}

var (
	graphField       = (&onnxpb.ModelProto{}).ProtoReflect().Descriptor().Fields().ByName("graph").Number()
	initializerField = (&onnxpb.GraphProto{}).ProtoReflect().Descriptor().Fields().ByName("initializer").Number()
	rawField         = (&onnxpb.TensorProto{}).ProtoReflect().Descriptor().Fields().ByName("raw_data").Number()
)
