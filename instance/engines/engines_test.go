package engines

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

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func isPrepared(dir string) bool {
	_, ok := Prepared(dir)
	return ok
}

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

// served returns a bundle for a model server that already runs and doubles 1 and 2.
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

// numbers encodes float32s as a tensor's data.
func numbers(all ...float32) (data []byte) {
	for _, x := range all {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

// The same calls check, hash, prepare and open the bundles of every engine.
func TestBothKinds(t *testing.T) {
	for name, c := range map[string]struct{ manifest, other string }{
		"Python":         {write(t, "engine: python\nhandler: handler.py\n", "handler.py", doubling), write(t, "engine: python\nhandler: handler.py\n", "handler.py", doubling+"\n")},
		"a model server": {write(t, "engine: mlserver\nserver_url: "+served(t)+"\nmodel_name: twice\n"), write(t, "engine: mlserver\nserver_url: "+served(t)+"/\nmodel_name: twice\n")},
	} {
		if err := Of(c.manifest).Check(t.Context(), c.manifest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		hash, err := Of(c.manifest).Hash(c.manifest)
		other, otherErr := Of(c.other).Hash(c.other)
		if err != nil || otherErr != nil || hash == "" || hash == other {
			t.Errorf("%s has the hash %q, another %q, %v", name, hash, other, errors.Join(err, otherErr))
		}
		dir, err := Of(c.manifest).Prepare(t.Context(), c.manifest, t.TempDir())
		if err != nil || !isPrepared(dir) || isPrepared(filepath.Dir(c.manifest)) {
			t.Errorf("%s is prepared in %q, %v", name, dir, err)
			continue
		}
		running, err := Open(t.Context(), dir, engine.Options{Threads: 1, MaxBatch: 4, Logger: zerolog.Nop()})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		out, err := running.Run(t.Context(), 1, []tensor.Tensor{{Name: "x", Type: tensor.FP32, Shape: []int64{1, 2}, Data: numbers(1, 2)}})
		if err != nil || len(out) != 1 || !bytes.Equal(out[0].Data, numbers(2, 4)) || running.Outputs()[0].Name != "y" {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		// A process is ours and holds something; a server that runs already is not.
		if ours := name == "Python"; running.Memory() > 0 != ours || running.ProcessorTime() > 0 != ours {
			t.Errorf("%s holds %d bytes and used %v", name, running.Memory(), running.ProcessorTime())
		}
		if err := running.Close(); err != nil {
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
		dir, err := Of(c.manifest).Prepare(t.Context(), c.manifest, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		running, err := Open(t.Context(), dir, engine.Options{Threads: 1, MaxBatch: 4, Logger: zerolog.Nop()})
		if err == nil {
			running.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), t.TempDir(), engine.Options{Threads: 1}); err == nil {
		t.Error("an empty directory is opened")
	}
}

// Every engine refuses the manifest of another one and says which engine runs it.
func TestOtherManifests(t *testing.T) {
	manifest := write(t, "engine: onnx\nmodel: model.onnx\n", "model.onnx", "")
	_, hash := Of(manifest).Hash(manifest)
	_, prepare := Of(manifest).Prepare(t.Context(), manifest, t.TempDir())
	for what, err := range map[string]error{"check": Of(manifest).Check(t.Context(), manifest), "hash": hash, "prepare": prepare} {
		if err == nil || !strings.Contains(err.Error(), "onnx") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
