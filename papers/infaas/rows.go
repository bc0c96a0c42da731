package infaas

import (
	"context"
	"fmt"
	"slices"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// runRows runs rows as instances do: together, or one after the other for a model that takes
// one request an execution, with the rows' own shapes in front of the engine's.
func runRows(ctx context.Context, e *onnxruntime.Engine, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	if e.Unbatched() == "" {
		return e.Run(ctx, rows, inputs)
	}
	var all []tensor.Tensor
	for row := range rows {
		one := slices.Clone(inputs)
		for i, t := range one {
			if len(t.Shape) == 0 || t.Shape[0] != int64(rows) || t.Type == tensor.Bytes {
				return nil, fmt.Errorf("input %q has no rows, so the model's answers cannot be compared row by row: %s", t.Name, e.Unbatched())
			}
			size := len(t.Data) / rows
			one[i].Data = t.Data[row*size : (row+1)*size]
			one[i].Shape = append([]int64{1, 1}, t.Shape[1:]...)
		}
		out, err := e.Run(ctx, 1, one)
		if err != nil {
			return nil, err
		}
		if row == 0 {
			all = out
		}
		for i, t := range out {
			if len(t.Shape) < 2 || t.Shape[1] != 1 || !slices.Equal(t.Shape[2:], all[i].Shape[2-min(row, 1):]) {
				return nil, fmt.Errorf("output %q has no row for each input row, so the model's answers cannot be compared: %s", t.Name, e.Unbatched())
			}
			if row == 0 {
				all[i].Shape = slices.Clone(t.Shape[1:])
				continue
			}
			all[i].Data = append(all[i].Data, t.Data...)
			all[i].Shape[0]++
		}
	}
	return all, nil
}
