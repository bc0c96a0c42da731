// Package zoo makes the models of INFless Table 1, the larger ones of Gillis, those of
// AsyFunc Table 2, and one that does nothing, with seeded random weights and a dynamic batch dimension. A
// model's latency depends on its architecture and not on its weights, so these models
// stand in for trained ones in benchmarks, demonstrations and tests. Their answers mean
// nothing. A model's large weights are generated when it is written, so its graph costs
// next to nothing at any size. Begin with [Make] and architectures.go.
//
// The table gives a size and GFLOPs per model, not the architecture. If the two
// contradict each other or the literature, the size decides, and the Note of the
// [Architecture] says so. The table's sizes are MiB, as ResNet-50 (25.6 million
// parameters, 98M) and BERT-base with a vocabulary of 21128 words (102 million,
// 391M) show. Its GFLOPs count a multiply-add once for ResNet-50 and most others,
// and twice for BERT. [model.Operator] counts it once everywhere.
package zoo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model"
)

// Architecture is one model that the zoo can make.
type Architecture struct {
	// Name is the paper's name in lower case. [Make] takes it.
	Name string
	// Aliases are other names that [Make] takes.
	Aliases []string
	// Description is one sentence about the network.
	Description string
	// TableSize and TableGFLOPs are the figures of INFless Table 1, "" and 0 for
	// a model that is not in it.
	TableSize   string
	TableGFLOPs float64
	// Note says how our model differs from the table or the literature, and why. It
	// may be "".
	Note string

	build func(*network)
}

// All lists the zoo, smallest first. The largest have gigabytes of weights; those in
// INFless Table 1 have a TableSize. Of the family rnn-N it has one member.
func All() []Architecture { return slices.Clone(architectures) }

// Names lists the names of [All].
func Names() []string {
	var names []string
	for _, a := range architectures {
		names = append(names, a.Name)
	}
	return names
}

// Find returns the architecture with this name or alias, in upper or lower case. It
// knows rnn-N for every N from 1 to 1000.
func Find(name string) (Architecture, bool) {
	name = strings.ToLower(name)
	for _, a := range architectures {
		if a.Name == name || slices.Contains(a.Aliases, name) {
			return a, true
		}
	}
	return parseRecurrent(name)
}

// Make makes the model of that name. It takes milliseconds, because weights of more than
// 1024 elements are generated when the model is written ([model.Generated]). The same
// name and seed give the same bytes when written. The graph has the architecture's name,
// which identifies the model in a file. The error for an unknown name lists the known
// names.
func Make(name string, seed uint64) (*model.Model, error) {
	a, ok := Find(name)
	if !ok {
		return nil, fmt.Errorf("no model named %q in the zoo; it has %s", name, strings.Join(Names(), ", "))
	}
	n := newNetwork(a, seed)
	a.build(n)
	m, err := n.model()
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", a.Name, err)
	}
	return m, nil
}
