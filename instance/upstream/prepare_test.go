package upstream_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func float32Inf() float32 { return float32(math.Inf(1)) }

// A prepared bundle does not change when the bundle is replaced. There is one for each
// content.
func TestPreparedBundlesStay(t *testing.T) {
	manifest := write(t, map[string]string{"bundle.yaml": "name: a\nengine: tensorflow-serving\nmodel: m\nmodel_name: b\n", "m/saved_model.pb": "one"})
	cache := t.TempDir()
	if !upstream.IsManifest(manifest) || upstream.IsManifest(filepath.Dir(manifest)) {
		t.Error("the manifest is not told")
	}
	first, err := upstream.Prepare(t.Context(), manifest, cache)
	if err != nil || !upstream.IsPrepared(first) {
		t.Fatalf("%s, %v", first, err)
	}
	if again, err := upstream.Prepare(t.Context(), manifest, cache); err != nil || again != first {
		t.Errorf("%s, %v; it was %s", again, err, first)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(manifest), "m", "saved_model.pb"), []byte("two"), 0o644); err != nil {
		t.Fatal(err)
	}
	second, err := upstream.Prepare(t.Context(), manifest, cache)
	if err != nil || second == first {
		t.Errorf("another content is in %s, %v", second, err)
	}
	p, err := upstream.Read(first)
	if err != nil || p.Name != "b" || p.Engine != "tensorflow-serving" {
		t.Fatalf("%+v, %v", p, err)
	}
	if text, err := os.ReadFile(filepath.Join(p.Dir, "m", "saved_model.pb")); err != nil || string(text) != "one" {
		t.Errorf("what was prepared is %q now, %v", text, err)
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 2 {
		t.Errorf("%d things are kept, %v", len(entries), err)
	}
}

func TestBundlesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"good":        {map[string]string{"bundle.yaml": "name: a\nengine: triton\nmodel: m\n", "m/config.pbtxt": "backend: \"python\"", "m/1/model.py": ""}, ""},
		"no config":   {map[string]string{"bundle.yaml": "name: a\nengine: triton\nmodel: m\n", "m/1/model.onnx": ""}, ""},
		"no message":  {map[string]string{"bundle.yaml": "name: a\nengine: triton\nmodel: m\n", "m/config.pbtxt": "a: 1\ninput [ {\n", "m/1/model.py": ""}, "config.pbtxt: line 3: input: '}' is missing"},
		"an ensemble": {map[string]string{"bundle.yaml": "name: a\nengine: triton\nmodel: m\n", "m/config.pbtxt": "ensemble_scheduling { }", "m/1/model.py": ""}, "ensemble_scheduling is not supported"},
		"sequences":   {map[string]string{"bundle.yaml": "name: a\nengine: triton\nmodel: m\n", "m/config.pbtxt": "sequence_batching { }", "m/1/model.py": ""}, "sequence_batching is not supported"},
		"no JSON":     {map[string]string{"bundle.yaml": "name: a\nengine: mlserver\nmodel: m\n", "m/model-settings.json": "{"}, "model-settings.json: unexpected end"},
		"a URL":       {map[string]string{"bundle.yaml": "name: a\nengine: mlserver\nserver_url: http://127.0.0.1:1\n"}, ""},
		"no bundle":   {map[string]string{"bundle.yaml": "name: a\nengine: onnx\nmodel: m.onnx\n", "m.onnx": ""}, `the engine "onnx" is no model server`},
	} {
		err := upstream.Check(write(t, c.files))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A command that is not there, one that ends, and one that says why.
func TestCommandsThatDoNotServe(t *testing.T) {
	t.Setenv("PATH", "/usr/bin:/bin")
	for server, want := range map[string]string{
		"":                    "tensorflow_model_server is not on PATH; build the image from tensorflow/serving",
		"no-such-program --x": "server: no-such-program is not on PATH",
		"./serve now":         "the model server exited with status 3: Error: no model at all",
		"/no/such/program":    "start /no/such/program",
	} {
		manifest := "name: a\nengine: tensorflow-serving\nmodel: m\n"
		if server != "" {
			manifest += "server: " + server + "\n"
		}
		_, _, err := tryServe(t, prepare(t, write(t, map[string]string{
			"bundle.yaml": manifest, "m/saved_model.pb": "", "serve": "#!/bin/sh\necho starting\necho Error: no model at all >&2\necho $@\nexit 3\n",
		})))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", server, err, want)
		}
	}
}

// openServer is a server with the Open Inference Protocol in JSON. It returns the input, and
// stops answering after stop.
type openServer struct {
	*httptest.Server
	deaf chan struct{}
	// breaks is the number of requests that it breaks off from now on, calls counts all.
	breaks, calls atomic.Int64
}

func newOpenServer(t *testing.T) *openServer {
	t.Helper()
	s := &openServer{deaf: make(chan struct{})}
	mux := http.NewServeMux()
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	mux.HandleFunc("GET /team/v2", say(`{"name":"s","extensions":[]}`))
	mux.HandleFunc("GET /team/v2/models/m/ready", say(`{}`))
	mux.HandleFunc("GET /team/v2/models/m", say(`{"inputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}],"outputs":[{"name":"x","datatype":"FP32","shape":[-1,2]}]}`))
	mux.HandleFunc("POST /team/v2/models/m/infer", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // Or the end of the connection is not seen.
		s.calls.Add(1)
		if s.breaks.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
		select {
		case <-s.deaf:
			<-r.Context().Done()
			return
		default:
		}
		_, _ = w.Write([]byte(`{"outputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[[1,2]]}]}`))
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// The engine uses a server at an address. A server that hangs or is gone fails one batch.
func TestServersAtAnAddress(t *testing.T) {
	s := newOpenServer(t)
	p := prepare(t, write(t, map[string]string{"bundle.yaml": "name: a\nengine: mlserver\nserver_url: " + s.URL + "/team/\nmodel_name: m\n"}))
	e, _ := serve(t, p, func(o *upstream.Options) { o.Timeout = 50 * time.Millisecond })
	x := []tensor.Tensor{floats("x", 1, 2)}
	if out, err := e.Run(t.Context(), 1, x); err != nil || values(out[0])[1] != 2 || e.Memory() != 0 {
		t.Errorf("%v, %v", out, err)
	}
	close(s.deaf)
	if _, err := e.Run(t.Context(), 1, x); !lost(err) || !strings.Contains(err.Error(), s.URL+"/team/ did not answer in time") {
		t.Errorf("a deaf server: %v", err)
	}
	s.CloseClientConnections()
	s.Close()
	for range 2 {
		if _, err := e.Run(t.Context(), 1, x); !lost(err) {
			t.Errorf("a server that is gone: %v", err)
		}
	}
}

// A batch that a server broke off after it had kept the connection is sent once more, unless nothing may run
// twice.
func TestServersThatBreakOff(t *testing.T) {
	s := newOpenServer(t)
	p := prepare(t, write(t, map[string]string{"bundle.yaml": "name: a\nengine: mlserver\nserver_url: " + s.URL + "/team/\nmodel_name: m\n"}))
	e, _ := serve(t, p)
	x := []tensor.Tensor{floats("x", 1, 2)}
	for ctx, calls := range map[context.Context]int64{t.Context(): 2, frame.WithOnce(t.Context()): 1} {
		if _, err := e.Run(ctx, 1, x); err != nil {
			t.Fatal(err)
		}
		before := s.calls.Load()
		s.breaks.Store(1)
		_, err := e.Run(ctx, 1, x)
		if made := s.calls.Load() - before; made != calls || (err == nil) != (calls == 2) {
			t.Errorf("%d calls, want %d: %v", made, calls, err)
		}
	}
}
