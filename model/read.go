package model

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// Errors that reading a model wraps.
var (
	// ErrNotONNX: the bytes are not an ONNX model.
	ErrNotONNX = errors.New("not an ONNX model")
	// ErrTruncated: the bytes begin as an ONNX model and end early.
	ErrTruncated = errors.New("truncated ONNX model")
	// ErrExternalData: a file of external weights is missing, too short, or
	// outside the model's directory.
	ErrExternalData = errors.New("external data")
)

// ReadFile reads the ONNX model at path. It checks that weights in other files
// (ONNX external data) are there, but does not read them.
func ReadFile(path string) (*Model, error) {
	m, err := ReadGraph(path)
	if err != nil {
		return nil, err
	}
	if err := m.checkExternal(); err != nil {
		return nil, fmt.Errorf("read model %s: %w", path, err)
	}
	return m, nil
}

// ReadGraph is [ReadFile] without the check of external weights. A graph needs
// only their types and dimensions, and those are in the model's own file. So a
// model's file can be copied without its weights and still be read.
func ReadGraph(path string) (*Model, error) {
	if err := refuseForeign(path); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	p, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("read model %s: %w", path, err)
	}
	return &Model{proto: p, file: path}, nil
}

// refuseForeign refuses a file of another format before it is read as a whole.
func refuseForeign(path string) error {
	foreign, ok, err := RecogniseFile(path)
	switch {
	case err != nil:
		return fmt.Errorf("read model: %w", err)
	case ok:
		return fmt.Errorf("read model %s: %w: %w", path, ErrNotONNX, foreign)
	}
	return nil
}

// Read decodes an ONNX model. It refuses a model with external weights, because
// their directory is unknown; use [ReadFile] for these.
func Read(b []byte) (*Model, error) {
	p, err := decode(b)
	if err != nil {
		return nil, err
	}
	m := &Model{proto: p}
	if names := m.ExternalFiles(); len(names) > 0 {
		return nil, fmt.Errorf("%w: the weights are in %q; read the model from its file", ErrExternalData, names[0])
	}
	return m, nil
}

func decode(b []byte) (*onnxpb.ModelProto, error) {
	if foreign, ok := Recognise(bytes.NewReader(b), int64(len(b))); ok {
		return nil, fmt.Errorf("%w: %w", ErrNotONNX, foreign)
	}
	p := new(onnxpb.ModelProto)
	if err := proto.Unmarshal(b, p); err != nil {
		if at, ok := truncated(b); ok {
			return nil, fmt.Errorf("%w: a part that starts at byte %d does not end within the %d bytes; copy the file again", ErrTruncated, at, len(b))
		}
		return nil, fmt.Errorf("%w: %w; %s", ErrNotONNX, err, unknownWay)
	}
	if err := check(p); err != nil {
		return nil, err
	}
	return p, nil
}

// truncated reports whether b consists of fields that a ModelProto may have and
// the last one ends early. That field begins at byte at.
func truncated(b []byte) (at int, ok bool) {
	fields := (&onnxpb.ModelProto{}).ProtoReflect().Descriptor().Fields()
	for at < len(b) {
		number, kind, tag := protowire.ConsumeTag(b[at:])
		if tag < 0 || fields.ByNumber(number) == nil {
			return 0, false
		}
		value := protowire.ConsumeFieldValue(number, kind, b[at+tag:])
		if value < 0 {
			return at, errors.Is(protowire.ParseError(value), io.ErrUnexpectedEOF)
		}
		at += tag + value
	}
	return 0, false
}

// check refuses a message that decodes but is not an ONNX model.
func check(p *onnxpb.ModelProto) error {
	g := p.GetGraph()
	switch {
	case g == nil && p.GetIrVersion() > 0:
		return fmt.Errorf("%w: it ends before its graph; copy the file again", ErrTruncated)
	case g == nil:
		return fmt.Errorf("%w: it holds no graph; %s", ErrNotONNX, unknownWay)
	case len(g.GetOutput()) == 0:
		return fmt.Errorf("%w: its graph has no output", ErrNotONNX)
	}
	return nil
}

// ExternalFiles names the files of external weights, relative to the model's
// directory. Most models have none. A generated model has none until it is written.
func (m *Model) ExternalFiles() []string {
	if m.generate != nil {
		return nil
	}
	var names []string
	seen := make(map[string]bool)
	for _, t := range m.proto.GetGraph().GetInitializer() {
		if name := externalValue(t, "location"); isExternal(t) && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

func (m *Model) checkExternal() error {
	sizes := make(map[string]int64)
	for _, t := range m.proto.GetGraph().GetInitializer() {
		if !isExternal(t) {
			continue
		}
		name := externalValue(t, "location")
		size, known := sizes[name]
		if !known {
			f, err := openBeside(m.file, name)
			if err != nil {
				return fmt.Errorf("weight %q: %w", t.GetName(), err)
			}
			info, err := f.Stat()
			if err := errors.Join(err, f.Close()); err != nil {
				return fmt.Errorf("weight %q: %w", t.GetName(), err)
			}
			size = info.Size()
			sizes[name] = size
		}
		offset, _ := strconv.ParseInt(externalValue(t, "offset"), 10, 64)
		length, given, err := externalLength(t)
		if err != nil {
			return err
		}
		if needs := WeightBytes(t); given && length < needs {
			return fmt.Errorf("%w: weight %q is %d bytes, its dimensions %v need %d; the model is damaged", ErrExternalData, t.GetName(), length, t.GetDims(), needs)
		}
		if offset < 0 || length < 0 || offset > size-length {
			return fmt.Errorf("%w: weight %q is %d bytes at offset %d of %q, which has %d bytes; copy the file again", ErrExternalData, t.GetName(), length, offset, name, size)
		}
	}
	return nil
}

func isExternal(t *onnxpb.TensorProto) bool {
	return t.GetDataLocation() == onnxpb.TensorProto_EXTERNAL
}

func externalValue(t *onnxpb.TensorProto, key string) string {
	for _, e := range t.GetExternalData() {
		if e.GetKey() == key {
			return e.GetValue()
		}
	}
	return ""
}
