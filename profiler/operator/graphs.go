package operator

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model"
)

// FromGraphs takes a model apart as [Read] does, one of any format: at gives its
// graph at a batch size. Inputs with a Constant are weights.
//
// Dynamic dimensions beside the batch have to be settled before.
func FromGraphs(at func(batch int) (*model.Graph, error)) (*Graph, error) {
	r := emptyReading()
	if err := r.look(at); err != nil {
		return nil, err
	}
	for _, g := range r.at[1:] {
		if !slices.EqualFunc(g.Operators, r.at[0].Operators, sameNode) {
			return nil, &Unpredictable{[]string{fmt.Sprintf("a batch of %d", g.Batch)}, "other operators run than at a batch of 1"}
		}
	}
	for _, op := range r.at[0].Operators {
		r.nodes = append(r.nodes, op.Node)
		for _, in := range op.Inputs {
			if in.Constant != nil {
				r.folded[in.Name] = true
			}
		}
	}
	for _, v := range r.at[0].Outputs {
		r.outputs[v.Name] = true
	}
	return r.take()
}

func sameNode(a, b model.Operator) bool {
	return a.Name == b.Name && a.Type == b.Type && len(a.Inputs) == len(b.Inputs) && len(a.Outputs) == len(b.Outputs)
}
