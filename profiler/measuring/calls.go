package measuring

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Calls is the cost in µs of one call of the engine in addition to its operators. It is
// subtracted from the time of a single operator, because a model of n operators pays it
// once and not n times.
type Calls struct {
	// Base is the cost of a call with one input and one output, Tensor that of each
	// further pair. Node is the fixed cost of an operator. It belongs to the
	// operator and is not subtracted.
	Base, Tensor, Node float64
}

// Of is the cost in µs of a call with this number of inputs and outputs.
func (c Calls) Of(inputs, outputs int) float64 {
	return c.Base + c.Tensor*max(0, float64(inputs+outputs)/2-1)
}

const (
	chained = 17 // operators in the longer chain
	pairs   = 5  // inputs and outputs of the wider model
)

var callBudget = Budget{Runs: 200, MinTime: 50 * time.Millisecond, MaxTime: 2 * time.Second}

// calls measures models of Identity operators, which do nothing. A chain of n takes
// Base + n·d, where d is Node, so two lengths give Base and d. n side by side take
// Base + (n−1)·Tensor + n·d.
func (s *Sampler) calls(ctx context.Context) (Calls, error) {
	one, err := s.identities(ctx, 1, 1)
	if err != nil {
		return Calls{}, err
	}
	chain, err := s.identities(ctx, 1, chained)
	if err != nil {
		return Calls{}, err
	}
	wide, err := s.identities(ctx, pairs, 1)
	if err != nil {
		return Calls{}, err
	}
	each := max(0, (chain-one)/(chained-1))
	base := max(0, one-each)
	return Calls{Base: base, Node: each, Tensor: max(0, (wide-base-pairs*each)/(pairs-1))}, nil
}

// identities measures a model of several chains of Identity operators, in µs. length is
// the number of operators in each chain.
func (s *Sampler) identities(ctx context.Context, chains, length int) (float64, error) {
	g := &onnxpb.GraphProto{Name: proto.String("calls")}
	var in, out []tensor.Tensor
	for c := range chains {
		from := fmt.Sprintf("in%d", c)
		g.Input = append(g.Input, scalar(from))
		for i := range length {
			to := fmt.Sprintf("out%d", c)
			if i < length-1 {
				to = fmt.Sprintf("t%d.%d", c, i)
			}
			g.Node = append(g.Node, &onnxpb.NodeProto{OpType: proto.String("Identity"), Input: []string{from}, Output: []string{to}})
			from = to
		}
		g.Output = append(g.Output, scalar(from))
		in = append(in, tensor.Tensor{Type: tensor.FP32, Shape: []int64{1}, Data: floats(1)})
		out = append(out, tensor.Tensor{Type: tensor.FP32, Shape: []int64{1}})
	}
	m, err := model.FromProto(&onnxpb.ModelProto{
		IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(17)}},
	})
	if err != nil {
		return 0, err
	}
	single, err := onnxruntime.OpenSingle(m, 0, 1)
	if err != nil {
		return 0, err
	}
	defer single.Close()
	if err := single.Bind(in, out); err != nil {
		return 0, err
	}
	t, err := s.Take(ctx, callBudget, nil, single.Run)
	return t.Typical, err
}

// scalar is a float vector of one element.
func scalar(name string) *onnxpb.ValueInfoProto {
	dim := &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: 1}}
	return &onnxpb.ValueInfoProto{Name: &name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{
		ElemType: proto.Int32(int32(onnxpb.TensorProto_FLOAT)), Shape: &onnxpb.TensorShapeProto{Dim: []*onnxpb.TensorShapeProto_Dimension{dim}},
	}}}}
}
