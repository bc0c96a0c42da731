package quantise

import (
	"bytes"

	"github.com/faas-infer/faas-infer/instance/labelled"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// calibrationRows is the number of rows from which ranges of activations are taken.
const calibrationRows = 64

// Calibration returns rows for [Options]: some of the labelled set, evenly spread, or random
// ones if set is nil.
func Calibration(m *model.Model, set *labelled.Set) ([]tensor.Tensor, error) {
	if set == nil {
		return m.SampleInputs(calibrationRows, 0)
	}
	var all []tensor.Tensor
	rows := min(calibrationRows, set.Rows())
	for i := range rows {
		at := i * set.Rows() / rows
		one, err := set.Batch(at, at+1)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = one
			for k := range all { // The first row aliases the set.
				all[k].Data = bytes.Clone(all[k].Data)
			}
			continue
		}
		for k := range all {
			all[k].Data = append(all[k].Data, one[k].Data...)
			all[k].Shape[0]++
		}
	}
	return all, nil
}
