package savedmodel

import (
	"fmt"
	"math"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Model is one signature of a SavedModel.
type Model struct {
	name, signature string
	all             []string
	inputs, outputs []port
	variables       []Variable
	operators       map[string]int
}

// Variable is a weight in a file beside the graph.
type Variable struct {
	Name string `json:"name"`
	// Type is "" for a type without an Open Inference name. Shape is nil if the
	// file gives none.
	Type  tensor.Type `json:"type"`
	Shape []int64     `json:"shape"`
	// Bytes is the size, 0 if the shape is unknown.
	Bytes int64 `json:"bytes"`
}

func fromProto(saved *pb.SavedModel, name, signature string) (*Model, error) {
	meta, err := served(saved)
	if err != nil {
		return nil, err
	}
	m := &Model{name: name, all: signatures(meta)}
	if m.signature, err = choose(meta, signature); err != nil {
		return nil, err
	}
	def := meta.GetSignatureDef()[m.signature]
	if m.inputs, err = ports(def.GetInputs()); err != nil {
		return nil, err
	}
	if m.outputs, err = ports(def.GetOutputs()); err != nil {
		return nil, err
	}
	g := newGraph(meta.GetGraphDef())
	reached, err := g.reach(append(tensors(m.inputs), tensors(m.outputs)...))
	if err != nil {
		return nil, fmt.Errorf("%w: signature %q: %w", ErrNotSavedModel, m.signature, err)
	}
	m.variables = variables(reached)
	if m.operators, err = g.count(reached); err != nil {
		return nil, fmt.Errorf("%w: signature %q: %w", ErrNotSavedModel, m.signature, err)
	}
	return m, nil
}

// Name is the directory's name. For the directory of a version it is the name of
// the directory above.
func (m *Model) Name() string { return m.name }

// Signature is the name of the signature that was read.
func (m *Model) Signature() string { return m.signature }

// Signatures names all signatures that callers can use, sorted.
func (m *Model) Signatures() []string { return m.all }

// Inputs describes what a caller must send, sorted by name. Dynamic dimensions, the
// batch among them, are -1. The shape is nil if the file gives none.
func (m *Model) Inputs() []tensor.Info { return infos(m.inputs) }

// Outputs describes what a caller gets, sorted by name.
func (m *Model) Outputs() []tensor.Info { return infos(m.outputs) }

// Variables are the weights that the signature reads, sorted by name. They do not
// include weights that are constants of the graph.
func (m *Model) Variables() []Variable { return m.variables }

// Operators counts the operators that the signature reaches, by kind. It counts
// the operators of a called function once.
func (m *Model) Operators() map[string]int { return m.operators }

func infos(ports []port) []tensor.Info {
	out := make([]tensor.Info, 0, len(ports))
	for _, p := range ports {
		out = append(out, tensor.Info{Name: p.key, Type: elements[element(p.kind)].name, Shape: shape(p.shape)})
	}
	return out
}

// variableBytes is the size in bytes of the variables whose shape is known.
func (m *Model) variableBytes() int64 {
	size := int64(0)
	for _, v := range m.variables {
		size += min(v.Bytes, math.MaxInt64-size)
	}
	return size
}
