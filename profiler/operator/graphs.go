package operator

import (
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/model"
)

// FromGraphs is [Read] for a model of any format. at returns its graph at a batch size.
// Inputs with a Constant are weights. Dynamic dimensions other than the batch must have
// a size already.
func FromGraphs(at func(batch int) (*model.Graph, error)) (*Graph, error) {
	r := emptyReading()
	if err := r.look(at); err != nil {
		return nil, err
	}
	for _, g := range r.at[1:] {
		if !slices.EqualFunc(g.Operators, r.at[0].Operators, sameNode) {
			return nil, &Unpredictable{[]string{fmt.Sprintf("a batch of %d", g.Batch)}, "its operators differ from those at a batch of 1"}
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
