package model_test

import (
	"slices"
	"strings"
	"testing"
)

// blocked is a part of an optimised graph. It puts 24 channels into blocks, convolves
// them and takes them out again.
const blocked = `
ir_version: 8
opset_import { version: 17 }
opset_import { domain: "com.microsoft.nchwc" version: 1 }
graph {
  name: "blocked"
  input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_param: "batch" } dim { dim_value: 24 } dim { dim_value: 7 } dim { dim_value: 7 } } } } }
  output { name: "y" type { tensor_type { elem_type: 1 } } }
  initializer { name: "w" dims: 48 dims: 32 dims: 1 dims: 1 data_type: 1 }
  node { op_type: "ReorderInput" domain: "com.microsoft.nchwc" input: "x" output: "in" }
  node { op_type: "Conv" domain: "com.microsoft.nchwc" input: "in" input: "w" output: "c" }
  node { op_type: "ReorderOutput" domain: "com.microsoft.nchwc" input: "c" output: "y" attribute { name: "channels" i: 40 } }
}`

// The weights give the width of a block: 24 channels become 32 in blocks of 16, and 24
// in blocks of 8.
func TestGraphPadsBlocks(t *testing.T) {
	for _, test := range []struct {
		old, new string
		want     []int64
	}{
		{"", "", []int64{2, 32, 7, 7}},
		{"dims: 48 dims: 32", "dims: 40 dims: 24", []int64{2, 24, 7, 7}},
		{`input: "in" input: "w"`, `input: "in" input: "w" attribute { name: "group" i: 1 }`, []int64{2, 32, 7, 7}},
		{"dims: 48 dims: 32", "dims: 48 dims: 3200", nil},
	} {
		g, err := parse(t, strings.Replace(blocked, test.old, test.new, 1)).Graph(2)
		if test.want == nil {
			if err == nil {
				t.Errorf("weights for %q were taken for 24 channels", test.new)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Operators[0].Outputs[0].Shape; !slices.Equal(got, test.want) || len(g.Unknown) > 0 {
			t.Errorf("%q: the blocks are %v, want %v; unknown %q", test.new, got, test.want, g.Unknown)
		}
		if got := g.Outputs[0].Shape; !slices.Equal(got, []int64{2, 40, 7, 7}) {
			t.Errorf("the output is %v", got)
		}
	}
}
