package upstream_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

const mlserverSettings = `{
  "name": "another", "implementation": "runtime.Twice", "max_batch_size": 3, "max_batch_time": 0.5,
  "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
  "outputs": [{"name": "twice", "datatype": "FP32", "shape": [-1, 2]}]
}`

// The real MLServer runs a batch as one request, and one that dies is replaced.
func TestMLServer(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"bundle.yaml": "name: twice\nengine: mlserver\nmodel: model\n", "model/model-settings.json": mlserverSettings,
		"model/settings.json": `{"http_port": 8080, "parallel_workers": 3}`, "model/runtime.py": "@mlserver.py",
	}
	e, l := serve(t, prepare(t, write(t, files)))
	if got := fmt.Sprint(e.Inputs(), e.Outputs()); got != "[{x FP32 [-1 2]}] [{twice FP32 [-1 2]}]" {
		t.Errorf("the model takes and gives %s", got)
	}
	l.Await(t, "batch 8 time 0", 1)
	good := func() {
		t.Helper()
		out, err := e.Run(t.Context(), 3, []tensor.Tensor{floats("x", 1, 2, 3, 4, 5, 0.1)})
		if err != nil || fmt.Sprint(values(out[0])) != "[2 4 6 8 10 0.2]" {
			t.Errorf("%v, %v\n%s", out, err, l)
		}
	}
	good()
	if _, err := e.Run(t.Context(), 1, []tensor.Tensor{floats("x", 400, 0)}); err == nil || lost(err) || !strings.Contains(err.Error(), "no 400 here") {
		t.Errorf("an error: %v", err)
	}
	good()
	if _, err := e.Run(t.Context(), 1, []tensor.Tensor{floats("x", 401, 0)}); !lost(err) || !strings.Contains(err.Error(), "exited with status 7") {
		t.Errorf("a server that ends: %v", err)
	}
	good()
	if e.Memory() < 10<<20 {
		t.Errorf("it holds %d bytes", e.Memory())
	}
}

func TestMLServerWithoutASignature(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"bundle.yaml":               "name: twice\nengine: mlserver\nmodel: model\n",
		"model/model-settings.json": `{"name": "twice", "implementation": "runtime.Twice"}`, "model/runtime.py": "@mlserver.py",
	}
	if _, l, err := tryServe(t, prepare(t, write(t, files))); err == nil || !strings.Contains(err.Error(), "reports 0 inputs and 0 outputs; write both into the model's settings") {
		t.Errorf("%v\n%s", err, l)
	}
}
