package bundles

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
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
	// A candidate takes over with its content, and a revision that is deployed again has its own.
	next := revision(3)
	next.Deployment.EnvVars = map[string]string{"A": "3"}
	if err := d.Fetch(t.Context(), next.Deployment, next.Inference, nil); err != nil {
		t.Fatal(err)
	}
	candidate := *next
	candidate.Name, candidate.Deployment.Service = "f--next.openfaas-fn", "f--next"
	if _, err := d.open(t.Context(), &candidate); err != nil {
		t.Fatal(err)
	}
	content.Store("mnist")
	if b, err := d.open(t.Context(), next); err != nil {
		t.Error(err)
	} else if got, err := os.ReadFile(b.ModelPath()); err != nil || !bytes.Equal(got, read("identity")) {
		t.Error("a promoted revision has other content", len(got), err)
	}
	again := *next
	again.Revision = 4
	if b, err := d.open(t.Context(), &again); err != nil {
		t.Error(err)
	} else if got, err := os.ReadFile(b.ModelPath()); err != nil || !bytes.Equal(got, read("identity")) {
		t.Error("a revision that was deployed again has other content", len(got), err)
	}
	// The first two revisions have one deployment and two contents: nobody knows which of them is meant.
	if b, err := d.open(t.Context(), revision(5)); err == nil || !strings.Contains(err.Error(), "deploy it again") {
		t.Error(b, err)
	}
	back := revision(6)
	back.BackTo = 1
	if b, err := d.open(t.Context(), back); err != nil {
		t.Error(err)
	} else if got, err := os.ReadFile(b.ModelPath()); err != nil || !bytes.Equal(got, read("mnist")) {
		t.Error("who goes back to a revision has other content", len(got), err)
	}
	s.Close()
	later := open()
	has(later, 1, "mnist")
	has(later, 2, "identity")
	if needed, spare := later.inUse(); len(needed) != 0 || len(spare) != 2 {
		t.Errorf("in use: %v, %v", needed, spare)
	}
	if err := later.Fetch(t.Context(), revision(7).Deployment, revision(7).Inference, nil); err == nil || !strings.Contains(err.Error(), annotation.InferModel) {
		t.Error(err)
	}
	f := revision(7)
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

// TestLatestRevisionsKeepTheirPins: the pins of a function's latest revisions stay, however old; those of others go an
// hour after they were last wanted.
func TestLatestRevisionsKeepTheirPins(t *testing.T) {
	stored := []store.Function{{Deployment: types.FunctionDeployment{Service: "f", Namespace: "n"}, Revision: 12}}
	d := NewDownloads(DownloadOptions{Dir: t.TempDir(), MaxBytes: 1 << 30}, noSecrets{},
		func(string) ([]store.Function, error) { return stored, nil })
	defer d.Close()
	old := time.Now().Add(-2 * UnusedFor)
	add := func(name string) {
		if err := write(d.pinFile(name), []byte("sha256-"+name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(d.pinFile(name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 12 {
		add(pinName("f.n", uint64(n+1)))
	}
	add(pinName("f--next.n", 12))
	add(pinName("gone.n", 7))
	needed, spare := d.inUse()
	if !slices.Equal(needed, []string{"sha256-f.n@12"}) {
		t.Errorf("needed: %v", needed)
	}
	if len(spare) != 10 || spare[0] != "sha256-f.n@3" || slices.Contains(spare, "sha256-f.n@2") {
		t.Errorf("what can be spared, the oldest first: %v", spare)
	}
	stored = nil // From now on it counts.
	if needed, spare := d.inUse(); len(needed) != 0 || len(spare) != 11 {
		t.Errorf("in use just after the function was removed: %v, %v", needed, spare)
	}
}
