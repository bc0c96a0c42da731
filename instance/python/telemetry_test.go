package python_test

import "testing"

// A handler that imports ONNX Runtime does not report to its maker.
func TestHandlersHaveNoTelemetry(t *testing.T) {
	t.Setenv("ORT_DISABLE_TELEMETRY", "")
	e, _ := serve(t, handler(t, `
import os
import numpy as np

inputs = {"x": ("float32", [1])}
outputs = {"y": ("float32", [1])}


def handle(batch):
    return [{"y": np.full_like(request["x"], float(os.environ["ORT_DISABLE_TELEMETRY"]))} for request in batch]
`))
	out, err := e.Run(t.Context(), 1, floats("x", 5))
	if err != nil || values(out[0])[0] != 1 {
		t.Errorf("%v, %v", out, err)
	}
}
