// Package function has the pre- and post-processing of the model.
//
// The instance calls Pre and Post once for a batch, with the rows of all its requests one
// after another. A tensor is a slice of its elements, row by row: []float32, []int64, …
package function

import "fmt"

// Inputs lists the inputs of a request, Outputs the outputs of its answer: names, and the
// types and shapes of one row. An empty list means the model's own.
var (
	Inputs  = []string{"lengths float32[4]"}
	Outputs = []string{"kind int64[1]"}
)

// Pre turns the inputs of requests into the model's inputs.
func Pre(rows int, inputs map[string]any) (map[string]any, error) {
	for _, length := range inputs["lengths"].([]float32) {
		if length < 0 {
			return nil, fmt.Errorf("a length of %g cm: it must not be negative", length)
		}
	}
	return inputs, nil
}

// Post turns the model's outputs into the outputs of answers.
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
