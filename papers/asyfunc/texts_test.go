package asyfunc

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/model/textmodel"
	"github.com/faas-infer/faas-infer/model/textmodel/textmodeltest"
)

// A body takes texts as its bundle says.
func TestBodyTakesTexts(t *testing.T) {
	dir := textmodeltest.Lay(t, nil)
	file := filepath.Join(dir, "model.onnx")
	textmodeltest.Graph{}.Write(t, file)
	found, err := textmodel.Recognise(dir, dir)
	if err == nil {
		err = found.Manifest.WriteFile(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := commandtest.Command("instance", "prepare", "--model", file, "--cache", filepath.Join(t.TempDir(), "cache")).Output()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	p := commandtest.Command("instance", "body", "--name", "m", "--prepared", strings.TrimSpace(string(out)), "--bundle", dir,
		"--concurrency", "2", "--max-batch", "8", "--max-length", "4", "--refuse-long", "--listen", "unix://"+socket)
	commandtest.UntilReady(t, p)
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait() // It was killed.
	})
	for body, want := range map[string]string{`{"input":["a","b a"]}`: `"embedding":[`, `{"input":"a a a a a a"}`: "more than 4 tokens"} {
		r, err := commandtest.Client(t, socket).Post("http://instance/v1/embeddings", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || (r.StatusCode == http.StatusOK) != strings.HasPrefix(want, `"emb`) || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d %s, %v", body, r.StatusCode, text, err)
		}
	}
}
