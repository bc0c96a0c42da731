// Package function is what is done before and after the model.
//
// Pre and Post are called once for a batch, with the rows of all its requests one after
// another. A tensor is a slice of its elements, row by row: []float32, []int64, …
package function

import "fmt"

// Inputs are what a request has, Outputs what its answer has: names, and the types and
// shapes of one row. Where nothing is written, they are the model's.
var (
	Inputs  = []string{"lengths float32[4]"}
	Outputs = []string{"kind int64[1]"}
)

// Pre makes the model's inputs of what requests have.
func Pre(rows int, inputs map[string]any) (map[string]any, error) {
	for _, length := range inputs["lengths"].([]float32) {
		if length < 0 {
			return nil, fmt.Errorf("a length of %g cm: it must not be negative", length)
		}
	}
	return inputs, nil
}

// Post makes what answers have of the model's outputs.
func Post(rows int, outputs map[string]any) (map[string]any, error) {
	species := outputs["species"].([]float32)
	wide := len(species) / rows
	kinds := make([]int64, rows)
	for row := range kinds {
		of := species[row*wide : (row+1)*wide]
		for kind, share := range of {
			if share > of[kinds[row]] {
				kinds[row] = int64(kind)
			}
		}
	}
	return map[string]any{"kind": kinds}, nil
}
