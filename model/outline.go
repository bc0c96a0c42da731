package model

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// outlined is the size in bytes from which [ReadOutline] leaves a weight where it is.
const outlined = 4096

// maxPart is the maximum size in bytes of what [ReadOutline] reads of a file, without its
// weights.
const maxPart = 1 << 30

// ReadOutline is [ReadFile] for a model whose weights shall not be read: those within the
// file become external data of the model's own file, and [Model.OpenWeights] reads them by
// range. So a model takes little memory whatever its size, also one of more than
// protobuf's 2 GiB, which only an outline can read. Such a model cannot be written again.
func ReadOutline(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read model: %w", err)
	}
	if foreign, ok := Recognise(f, info.Size()); ok {
		return nil, fmt.Errorf("read model %s: %w: %w", path, ErrNotONNX, foreign)
	}
	o := &outline{in: &window{in: f}, name: filepath.Base(path)}
	p, err := o.read(info.Size())
	if err == nil {
		err = check(p)
	}
	m := &Model{proto: p, file: path}
	if err == nil {
		err = m.checkExternal()
	}
	if err != nil {
		return nil, fmt.Errorf("read model %s: %w", path, err)
	}
	return m, nil
}

// Weightless returns the message of a model that [ReadOutline] has read, with the weights that stay in its file as
// inputs. An engine infers the same shapes from it, and loads it at once whatever the weights' size. It reports false
// if weights are in other files, or if none was left out.
func (m *Model) Weightless() (message []byte, ok bool) {
	return m.without(func(g *onnxpb.GraphProto, t *onnxpb.TensorProto) {
		if !slices.ContainsFunc(g.Input, func(in *onnxpb.ValueInfoProto) bool { return in.GetName() == t.GetName() }) {
			g.Input = append(g.Input, asInput(t))
		}
	})
}

// Outlined returns the message of a model that [ReadOutline] has read, whose weights are in a copy of its file with
// another name. An engine maps them from there. It reports false as [Model.Weightless] does.
func (m *Model) Outlined(name string) (message []byte, ok bool) {
	return m.without(func(g *onnxpb.GraphProto, t *onnxpb.TensorProto) {
		for _, e := range t.GetExternalData() {
			if e.GetKey() == "location" {
				e.Value = proto.String(name)
			}
		}
		g.Initializer = append(g.Initializer, t)
	})
}

// without returns the message without the weights in the model's own file, each of which goes to put instead.
func (m *Model) without(put func(*onnxpb.GraphProto, *onnxpb.TensorProto)) (message []byte, ok bool) {
	p := proto.CloneOf(m.proto)
	g := p.GetGraph()
	all := g.GetInitializer()
	g.Initializer = nil
	for _, t := range all {
		switch {
		case !isExternal(t):
			g.Initializer = append(g.Initializer, t)
		case externalValue(t, "location") != filepath.Base(m.file):
			return nil, false
		default:
			put(g, t)
			ok = true
		}
	}
	if !ok {
		return nil, false
	}
	message, err := proto.Marshal(p)
	return message, err == nil
}

// asInput declares an input like a weight.
func asInput(t *onnxpb.TensorProto) *onnxpb.ValueInfoProto {
	shape := new(onnxpb.TensorShapeProto)
	for _, d := range t.GetDims() {
		size := &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: size})
	}
	of := &onnxpb.TypeProto_Tensor{ElemType: proto.Int32(t.GetDataType()), Shape: shape}
	return &onnxpb.ValueInfoProto{
		Name: proto.String(t.GetName()),
		Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: of}},
	}
}

// outline reads a model's file but for its large weights.
type outline struct {
	in   io.ReaderAt
	name string
	kept int64 // bytes read so far
	// head has the begin of a field: the longest tag and the longest varint.
	head [20]byte
}

func (o *outline) read(size int64) (*onnxpb.ModelProto, error) {
	p := new(onnxpb.ModelProto)
	var shell []byte
	var graph *onnxpb.GraphProto
	err := o.fields(0, size, func(x field) (err error) {
		if x.number == graphField && x.kind == protowire.BytesType && graph == nil {
			graph, err = o.graph(x)
			return err
		}
		shell, err = o.append(shell, x)
		return err
	})
	if err != nil {
		return p, err
	}
	if err := proto.Unmarshal(shell, p); err != nil {
		return p, fmt.Errorf("%w: %w", ErrNotONNX, err)
	}
	p.Graph = graph
	return p, nil
}

func (o *outline) graph(at field) (*onnxpb.GraphProto, error) {
	var body []byte
	var weights []*onnxpb.TensorProto
	err := o.fields(at.value, at.end, func(x field) error {
		if x.number == initializerField && x.kind == protowire.BytesType {
			t, err := o.weight(x)
			weights = append(weights, t)
			return err
		}
		var err error
		body, err = o.append(body, x)
		return err
	})
	if err != nil {
		return nil, err
	}
	g := new(onnxpb.GraphProto)
	if err := proto.Unmarshal(body, g); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotONNX, err)
	}
	g.Initializer = weights
	return g, nil
}

// dataFields are the fields of a tensor whose bytes are its elements, little-endian, if they
// are packed.
var dataFields = func() map[protowire.Number]bool {
	fields := (&onnxpb.TensorProto{}).ProtoReflect().Descriptor().Fields()
	numbers := make(map[protowire.Number]bool)
	for _, name := range []string{"raw_data", "float_data", "double_data"} {
		for i := range fields.Len() {
			if f := fields.Get(i); string(f.Name()) == name {
				numbers[f.Number()] = true
			}
		}
	}
	return numbers
}()

func (o *outline) weight(at field) (*onnxpb.TensorProto, error) {
	var rest []byte
	var data []field
	err := o.fields(at.value, at.end, func(x field) error {
		if dataFields[x.number] && x.kind == protowire.BytesType && x.end-x.value >= outlined {
			data = append(data, x)
			return nil
		}
		var err error
		rest, err = o.append(rest, x)
		return err
	})
	if err != nil {
		return nil, err
	}
	t := new(onnxpb.TensorProto)
	if err := proto.Unmarshal(rest, t); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotONNX, err)
	}
	if len(data) > 1 {
		return nil, fmt.Errorf("%w: weight %q has its data in %d pieces; write the model again", ErrNotONNX, t.GetName(), len(data))
	}
	for _, x := range data {
		t.DataLocation = onnxpb.TensorProto_EXTERNAL.Enum()
		t.ExternalData = []*onnxpb.StringStringEntryProto{
			entry("location", o.name), entry("offset", strconv.FormatInt(x.value, 10)), entry("length", strconv.FormatInt(x.end-x.value, 10)),
		}
	}
	return t, nil
}

// field is one field of a message: where it starts, where its value starts (after the
// length, if it has one), and where it ends.
type field struct {
	number            protowire.Number
	kind              protowire.Type
	start, value, end int64
}

// fields calls yield for each field between two positions.
func (o *outline) fields(from, end int64, yield func(field) error) error {
	for from < end {
		x, err := o.field(from, end)
		if err != nil {
			return err
		}
		if err := yield(x); err != nil {
			return err
		}
		from = x.end
	}
	return nil
}

func (o *outline) field(at, end int64) (field, error) {
	b := &o.head
	n, err := o.in.ReadAt(b[:min(int64(len(b)), end-at)], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return field{}, err
	}
	number, kind, tag := protowire.ConsumeTag(b[:n])
	if tag < 0 {
		return field{}, fmt.Errorf("%w: %w", ErrNotONNX, protowire.ParseError(tag))
	}
	x := field{number: number, kind: kind, start: at, value: at + int64(tag)}
	if kind == protowire.BytesType {
		size, length := protowire.ConsumeVarint(b[tag:n])
		if length < 0 || size > uint64(end) {
			return x, fmt.Errorf("%w: a part that starts at byte %d does not end within the %d bytes; copy the file again", ErrTruncated, at, end)
		}
		x.value += int64(length)
		x.end = x.value + int64(size)
	} else {
		size := protowire.ConsumeFieldValue(number, kind, b[tag:n])
		if size < 0 {
			return x, fmt.Errorf("%w: %w", ErrNotONNX, protowire.ParseError(size))
		}
		x.end = x.value + int64(size)
	}
	if x.end > end {
		return x, fmt.Errorf("%w: a part that starts at byte %d does not end within the %d bytes; copy the file again", ErrTruncated, at, end)
	}
	return x, nil
}

// append reads a field and appends it.
func (o *outline) append(b []byte, x field) ([]byte, error) {
	n := x.end - x.start
	if o.kept += n; o.kept > maxPart {
		return b, fmt.Errorf("%w: it has more than %d bytes besides its weights", ErrNotONNX, maxPart)
	}
	have := len(b)
	b = append(b, make([]byte, n)...)
	_, err := io.ReadFull(io.NewSectionReader(o.in, x.start, n), b[have:])
	return b, err
}
