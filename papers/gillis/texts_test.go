package gillis

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/textmodel"
	"github.com/faas-infer/faas-infer/model/textmodel/textmodeltest"
)

// cutTexts writes a model of texts of a length, 0 for any, and a plan that computes it on member 0.
func cutTexts(t *testing.T, length int64) (dir, file string) {
	t.Helper()
	dir = textmodeltest.Lay(t, nil)
	source := filepath.Join(dir, "model.onnx")
	textmodeltest.Graph{Fixed: length}.Write(t, source)
	found, err := textmodel.Recognise(dir, dir)
	if err == nil {
		err = found.Manifest.WriteFile(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	hash, err := model.ContentHash(source)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := cut.New(m)
	if err != nil {
		t.Fatal(err)
	}
	c := bundle.Cutting{Source: source, Plan: cut.Plan{Model: hash, Members: 1, Rounds: []cut.Round{
		{First: 0, End: len(whole.Layers()), Cut: "whole", On: []int{0}},
	}}}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "texts"+bundle.CuttingSuffix)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, file
}

// A master takes texts as its bundle says.
func TestMasterTakesTexts(t *testing.T) {
	for _, length := range []int64{0, 8} {
		dir, file := cutTexts(t, length)
		out, err := commandtest.Command("instance", "prepare", "--model", file, "--cache", filepath.Join(t.TempDir(), "cache")).Output()
		if err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(t.TempDir(), "s")
		p := commandtest.Command("instance", "member", "--name", "m", "--prepared", strings.TrimSpace(string(out)), "--bundle", dir,
			"--part", "0", "--max-batch", "8", "--listen", "unix://"+socket)
		commandtest.UntilReady(t, p)
		t.Cleanup(func() {
			_ = p.Process.Kill()
			_ = p.Wait() // It was killed.
		})
		r, err := commandtest.Client(t, socket).Post("http://instance/v1/embeddings", "application/json", strings.NewReader(`{"input":["a","b a a"]}`))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.Contains(string(text), `"index":1,"embedding":[`) {
			t.Error(fmt.Sprint(length, " tokens: ", r.StatusCode, string(text), err))
		}
	}
}
