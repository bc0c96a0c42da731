package model

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// WriteFile writes the model as an ONNX file, whole or not at all: it writes a
// file beside path and renames it. A model with external data can be written only
// into the directory that it was read from.
func (m *Model) WriteFile(path string) error {
	if names := m.ExternalFiles(); len(names) > 0 && filepath.Clean(m.dir) != filepath.Dir(path) {
		return fmt.Errorf("write model %s: %w: the weights are in %q in %s; copy the files instead", path, ErrExternalData, names[0], m.dir)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write model: %w", err)
	}
	defer os.Remove(f.Name())
	err = m.Write(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write model %s: %w", path, err)
	}
	return nil
}

// Write encodes the model. It encodes one weight at a time, so a model of hundreds
// of megabytes is in memory once and not twice.
func (m *Model) Write(w io.Writer) error {
	shell, body := withoutWeights(m.proto)
	options := proto.MarshalOptions{Deterministic: true}
	head, err := options.Marshal(shell)
	if err != nil {
		return fmt.Errorf("encode model: %w", err)
	}
	rest, err := options.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode graph: %w", err)
	}
	weights := m.proto.GetGraph().GetInitializer()
	size := len(rest)
	for _, t := range weights {
		size += protowire.SizeTag(initializerField) + protowire.SizeBytes(proto.Size(t))
	}
	out := bufio.NewWriterSize(w, 1<<20)
	out.Write(head)
	out.Write(appendLength(nil, graphField, size))
	out.Write(rest)
	var b []byte
	for _, t := range weights {
		b = appendLength(b[:0], initializerField, proto.Size(t))
		if b, err = options.MarshalAppend(b, t); err != nil {
			return fmt.Errorf("encode weight %q: %w", t.GetName(), err)
		}
		out.Write(b)
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

func appendLength(b []byte, field protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size))
}

var (
	graphField       = (&onnxpb.ModelProto{}).ProtoReflect().Descriptor().Fields().ByName("graph").Number()
	initializerField = (&onnxpb.GraphProto{}).ProtoReflect().Descriptor().Fields().ByName("initializer").Number()
)
