package savedmodel

import (
	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Model is one signature of a SavedModel.
type Model struct {
	name, signature string
	all             []string
	inputs, outputs []tensor.Info
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
	if m.inputs, err = infos(def.GetInputs()); err != nil {
		return nil, err
	}
	if m.outputs, err = infos(def.GetOutputs()); err != nil {
		return nil, err
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
// batch among them, are -1. The shape is nil if the file gives none. The type is ""
// if it has no Open Inference name.
func (m *Model) Inputs() []tensor.Info { return m.inputs }

// Outputs describes what a caller gets, sorted by name, as [Model.Inputs].
func (m *Model) Outputs() []tensor.Info { return m.outputs }
