package bundles

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model/source/origin"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/store"
)

// noSecrets has no secret.
type noSecrets struct{}

func (noSecrets) Value(_, name string) ([]byte, error) { return nil, os.ErrNotExist }

// TestRevisionsKeepTheirContent: a revision stays with what its deployment has found, also in a later provider without the
// server.
func TestRevisionsKeepTheirContent(t *testing.T) {
	dir := t.TempDir()
	var content atomic.Value
	for _, name := range []string{"mnist", "identity"} {
		m, err := zoo.Make(name, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.WriteFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	content.Store("mnist")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := content.Load().(string)
		w.Header().Set("ETag", `"`+name+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(read(name)))
	}))
	sources, err := origin.ParseSources([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	open := func() *Downloads {
		d := NewDownloads(DownloadOptions{Dir: filepath.Join(dir, "models"), MaxBytes: 1 << 30, Sources: sources}, noSecrets{},
			func(string) ([]store.Function, error) { return nil, nil })
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	revision := func(n uint64) *provider.Function {
		f := &provider.Function{Name: "f.openfaas-fn", Revision: n, Inference: annotation.Inference{Source: s.URL + "/m.onnx"}}
		f.Deployment = types.FunctionDeployment{Service: "f", Namespace: "openfaas-fn", Image: "any", Secrets: []string{"api-key"}}
		return f
	}
	has := func(d *Downloads, n uint64, name string) {
		t.Helper()
		b, err := d.open(t.Context(), revision(n))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(b.ModelPath()); err != nil || !bytes.Equal(got, read(name)) {
			t.Errorf("revision %d has %d bytes, %v; want %s", n, len(got), err, name)
		}
	}
	d := open()
	if err := d.Fetch(t.Context(), revision(1).Deployment, revision(1).Inference, nil); err != nil {
		t.Fatal(err)
	}
	has(d, 1, "mnist")
	content.Store("identity")
	has(d, 1, "mnist")
	if err := d.Fetch(t.Context(), revision(2).Deployment, revision(2).Inference, nil); err != nil {
		t.Fatal(err)
	}
	has(d, 2, "identity")
	has(d, 1, "mnist")
	s.Close()
	later := open()
	has(later, 1, "mnist")
	has(later, 2, "identity")
	if names := later.inUse(); len(names) != 2 {
		t.Errorf("in use: %v", names)
	}
	if err := later.Fetch(t.Context(), revision(3).Deployment, revision(3).Inference, nil); err == nil || !strings.Contains(err.Error(), annotation.InferModel) {
		t.Error(err)
	}
	f := revision(4)
	f.Deployment.Secrets = []string{"model-token"}
	if err := later.Fetch(t.Context(), f.Deployment, f.Inference, nil); err == nil || !strings.Contains(err.Error(), "secrets") {
		t.Error(err)
	}

	// A deployment that waits for its model outlives the provider.
	if err := d.Keep(f.Deployment); err != nil {
		t.Fatal(err)
	}
	if kept, err := later.Kept(); err != nil || len(kept) != 1 || kept[0].Service != "f" {
		t.Error(kept, err)
	}
	later.Drop("openfaas-fn", "f")
	if kept, err := d.Kept(); err != nil || len(kept) != 0 {
		t.Error(kept, err)
	}
}
