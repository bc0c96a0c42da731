package python_test

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python"
)

// An allocation that is far beyond the limit is its batch's error, and no more.
func TestOneAllocationTooLarge(t *testing.T) {
	e, l := serve(t, handler(t, head+`
import numpy as np
def handle(batch):
    if batch[0]["x"][0, 0]: np.ones(1 << 30)
    return [r["x"] for r in batch]
`), func(o *python.Options) { o.MemoryLimit = 256 << 20 })
	_, err := e.Run(t.Context(), 1, floats("x", 1))
	if err == nil || !strings.Contains(err.Error(), "Unable to allocate 8.00 GiB") || !strings.Contains(err.Error(), "ran out of memory (limit 256 MiB)") || lost(err) {
		t.Errorf("%v", err)
	}
	if _, err := e.Run(t.Context(), 1, floats("x", 0)); err != nil {
		t.Errorf("after it: %v", err)
	}
	l.Await(t, "Traceback", 1)
}

// A model too large for the limit gives that error, whether it loads at once or bit by bit.
func TestAModelTooLarge(t *testing.T) {
	for name, load := range map[string]string{
		"at once": "bytearray(2 << 30)", "bit by bit": "[bytearray(b'x') * (8 << 20) for _ in range(256)]",
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := tryServe(t, handler(t, head+"def load(path): return "+load+"\ndef handle(batch): return batch\n"),
				func(o *python.Options) { o.MemoryLimit = 256 << 20 })
			if err == nil || !strings.Contains(err.Error(), "load the model: ") || !strings.Contains(err.Error(), "out of memory") || !strings.Contains(err.Error(), "(limit 256 MiB)") {
				t.Errorf("%v", err)
			}
		})
	}
}
