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

// Variable is a weight, which is kept in a file beside the graph.
type Variable struct {
	Name string `json:"name"`
	// Type is "" for a type without an Open Inference name. Shape is nil where the
	// file gives none.
	Type  tensor.Type `json:"type"`
	Shape []int64     `json:"shape"`
	// Bytes is 0 where the shape is not known.
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

// Name is the directory's, or that of the one above it for a version.
func (m *Model) Name() string { return m.name }

// Signature is the one that was read.
func (m *Model) Signature() string { return m.signature }

// Signatures are all that the model has, sorted.
func (m *Model) Signatures() []string { return m.all }

// Inputs describes what a caller must send, sorted by name. The batch dimension
// and every other dynamic one is -1; the shape is nil if the file gives none.
func (m *Model) Inputs() []tensor.Info { return infos(m.inputs) }

// Outputs describes what a caller gets, sorted by name.
func (m *Model) Outputs() []tensor.Info { return infos(m.outputs) }

// Variables are the weights that the signature reads, sorted by name. Weights that
// are constants of the graph are not among them.
func (m *Model) Variables() []Variable { return m.variables }

// Operators counts the operators that the signature reaches by kind, those of every
// function that it calls once.
func (m *Model) Operators() map[string]int { return m.operators }

func infos(ports []port) []tensor.Info {
	out := make([]tensor.Info, 0, len(ports))
	for _, p := range ports {
		out = append(out, tensor.Info{Name: p.key, Type: elements[element(p.kind)].name, Shape: shape(p.shape)})
	}
	return out
}

// variableBytes is the size of the variables, as far as the file tells it.
func (m *Model) variableBytes() int64 {
	size := int64(0)
	for _, v := range m.variables {
		size += min(v.Bytes, math.MaxInt64-size)
	}
	return size
}
