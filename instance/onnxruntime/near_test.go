package onnxruntime

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// same compares the outputs of two models that may add up in another order: they differ by
// 1e-4 at most, relative for values above 1.
func same(want, got []tensor.Tensor) error {
	if err := sameSizes(want, got); err != nil {
		return err
	}
	for i, t := range want {
		for at := 0; at < len(t.Data); at += t.Type.Size() {
			w, g := t.Type.Number(t.Data[at:]), t.Type.Number(got[i].Data[at:])
			if !(math.Abs(w-g) <= 1e-4*math.Max(1, math.Abs(w))) {
				return fmt.Errorf("output %q differs: %g, not %g", t.Name, g, w)
			}
		}
	}
	return nil
}
