package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// modelServer serves a model, whose second half waits for a gate.
type modelServer struct {
	*httptest.Server
	content atomic.Value
	gate    chan struct{}
	sent    atomic.Int64
}

func newModelServer(t *testing.T, content []byte) *modelServer {
	t.Helper()
	m := &modelServer{gate: make(chan struct{})}
	m.content.Store(content)
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := m.content.Load().([]byte)
		sum := sha256.Sum256(now)
		w.Header().Set("ETag", `"`+hex.EncodeToString(sum[:4])+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(now)))
		half := len(now) / 2
		n, _ := w.Write(now[:half])
		m.sent.Add(int64(n))
		w.(http.Flusher).Flush()
		select {
		case <-m.gate:
		case <-r.Context().Done():
			return
		}
		n, _ = w.Write(now[half:])
		m.sent.Add(int64(n))
	}))
	t.Cleanup(m.Close)
	return m
}

// TestModelByURI deploys a model by its URI, watches the download, breaks it in several ways, and restarts the provider
// without the server.
func TestModelByURI(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	file := filepath.Join(p.dir, "identity.onnx")
	if err := zooModel(t, "identity").WriteFile(file); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	server := newModelServer(t, content)
	uri := server.URL + "/identity.onnx"
	d := p.provider(t, suite.binary, "--model-sources", "127.0.0.1")
	deployed := make(chan answer, 1)
	go func() { deployed <- d.put(t, http.MethodPost, function("far", "any:name", "1s", "infer.model", uri)) }()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if s, err := d.tryStatus("far"); err == nil && s.Annotations != nil && strings.Contains((*s.Annotations)[annotation.InferProgress], "being downloaded") {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the download is not shown")
		}
	}
	if a := do(t, client(t), http.MethodPost, d.function("far"), nil); a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "being downloaded") {
		t.Errorf("%d %s", a.status, a.body)
	}
	close(server.gate)
	if a := <-deployed; a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.body)
	}
	works := func(d *daemon) {
		t.Helper()
		if err := invokeIdentity(client(t), d.function("far"), 3); err != nil {
			t.Error(err)
		}
	}
	works(d)

	// Each is refused, and what runs goes on.
	for _, c := range []struct{ name, model, word string }{
		{"far", uri + "#sha256=" + strings.Repeat("0", 64), "SHA-256"},
		{"far", "https://169.254.169.254/model.onnx", "not public"},
		{"far", server.URL + "/folder/", "file"},
		{"new", uri + "#sha256=" + strings.Repeat("0", 64), "SHA-256"},
		{"new", "ftp://x/model.onnx", "https://"},
	} {
		a := d.put(t, http.MethodPost, function(c.name, "any:name", "1s", "infer.model", c.model))
		if a.status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", c.model, a.status, a.body)
		}
		wantWords(t, a.body, "com.openfaas.infer.model", c.word)
	}
	if a := do(t, client(t), http.MethodPost, d.function("new"), nil); a.status != http.StatusNotFound {
		t.Errorf("refused, and yet there: %d %s", a.status, a.body)
	}
	works(d)

	// A deployment of unchanged content downloads nothing.
	server.sent.Store(0)
	d.deploy(t, function("far", "any:name", "1s", "infer.model", uri+"#sha256="+hashOf(content)))
	if n := server.sent.Load(); n != 0 {
		t.Errorf("%d bytes for content that is here", n)
	}
	works(d)

	// Without the server a new provider has the model.
	server.Close()
	d.stop(t)
	again := p.provider(t, suite.binary, "--model-sources", "127.0.0.1")
	works(again)
	again.stop(t)
}

func hashOf(content []byte) string {
	sum := sha256.Sum256(bytes.Clone(content))
	return hex.EncodeToString(sum[:])
}
