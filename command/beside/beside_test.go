package beside

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write makes a bundle and returns its manifest.
func write(t *testing.T, manifest string, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	files = append([]string{"bundle.yaml", "name: test\n" + manifest}, files...)
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(files[i+1]), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "bundle.yaml")
}

const doubling = `
inputs = {"x": ("float32", [2])}
outputs = {"y": ("float32", [2])}
def handle(batch):
    return [{"y": 2 * r["x"]} for r in batch]
`

// served is a model server of others that runs already, and doubles 1 and 2.
func served(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	for route, text := range map[string]string{
		"GET /v2":                     `{"name":"s","extensions":[]}`,
		"GET /v2/models/twice/ready":  `{}`,
		"GET /v2/models/twice":        `{"inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],"outputs":[{"name":"y","datatype":"FP32","shape":[-1,2]}]}`,
		"POST /v2/models/twice/infer": `{"outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[[2,4]]}]}`,
	} {
		mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// numbers are float32s as tensors have them.
func numbers(all ...float32) (data []byte) {
	for _, x := range all {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

// Both kinds are checked, told by their content, prepared and opened by the same
// calls, whichever runs them.
func TestBothKinds(t *testing.T) {
	for name, c := range map[string]struct{ manifest, other string }{
		"Python":         {write(t, "engine: python\nhandler: handler.py\n", "handler.py", doubling), write(t, "engine: python\nhandler: handler.py\n", "handler.py", doubling+"\n")},
		"a model server": {write(t, "engine: mlserver\nserver_url: "+served(t)+"\nmodel_name: twice\n"), write(t, "engine: mlserver\nserver_url: "+served(t)+"/\nmodel_name: twice\n")},
	} {
		if err := Check(t.Context(), c.manifest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		hash, err := Hash(c.manifest)
		other, otherErr := Hash(c.other)
		if err != nil || otherErr != nil || hash == "" || hash == other {
			t.Errorf("%s has the hash %q, another %q, %v", name, hash, other, errors.Join(err, otherErr))
		}
		dir, err := Prepare(t.Context(), c.manifest, t.TempDir())
		if err != nil || !IsPrepared(dir) || IsPrepared(filepath.Dir(c.manifest)) {
			t.Errorf("%s is prepared in %q, %v", name, dir, err)
			continue
		}
		engine, err := Open(t.Context(), dir, Options{Threads: 1, MaxBatch: 4, Logger: zerolog.Nop()})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, err := engine.Run(t.Context(), 1, []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1, 2}, Data: numbers(1, 2)}})
		if err != nil || len(out) != 1 || !bytes.Equal(out[0].Data, numbers(2, 4)) || engine.Outputs()[0].Name != "y" {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		// A process is ours and holds something; a server that runs already is not.
		if ours := name == "Python"; engine.Memory() > 0 != ours || engine.ProcessorTime() > 0 != ours {
			t.Errorf("%s holds %d bytes and used %v", name, engine.Memory(), engine.ProcessorTime())
		}
		if err := engine.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatCannotBeOpened(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for name, c := range map[string]struct{ manifest, says string }{
		"a handler that fails":       {write(t, "engine: python\nhandler: handler.py\n", "handler.py", "raise ValueError('no weights')\ndef handle(batch): pass\n"), "no weights"},
		"a server that is not there": {write(t, "engine: mlserver\nserver_url: "+gone.URL+"\nmodel_name: twice\n"), "the model server at "},
	} {
		dir, err := Prepare(t.Context(), c.manifest, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		engine, err := Open(t.Context(), dir, Options{Threads: 1, MaxBatch: 4, Logger: zerolog.Nop()})
		if engine != nil && err == nil {
			engine.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), t.TempDir(), Options{Threads: 1}); err == nil {
		t.Error("an empty directory is opened")
	}
}

// A manifest of neither kind is refused by each, with a sentence that says what runs it.
func TestOtherManifests(t *testing.T) {
	manifest := write(t, "engine: onnx\nmodel: model.onnx\n", "model.onnx", "")
	_, hash := Hash(manifest)
	_, prepare := Prepare(t.Context(), manifest, t.TempDir())
	for what, err := range map[string]error{"check": Check(t.Context(), manifest), "hash": hash, "prepare": prepare} {
		if err == nil || !strings.Contains(err.Error(), "onnx") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
