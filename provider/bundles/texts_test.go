package bundles

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/textmodel"
	"github.com/faas-infer/faas-infer/model/textmodel/textmodeltest"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// withTexts makes a bundle of a small model that embeds texts.
func withTexts(t *testing.T, graph textmodeltest.Graph) string {
	t.Helper()
	dir := textmodeltest.Lay(t, nil)
	graph.Write(t, filepath.Join(dir, "model.onnx"))
	f, err := textmodel.Recognise(dir, dir)
	if err == nil {
		err = f.Manifest.WriteFile(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// A deployment of a model that does not fit its tokenizer, or cannot have the length, is refused.
func TestTextsOfDeployments(t *testing.T) {
	for what, c := range map[string]struct {
		graph  textmodeltest.Graph
		length int
		refuse bool
		want   string
	}{
		"one that fits":       {},
		"a shorter length":    {length: 4, refuse: true},
		"a longer length":     {length: 9, want: `com.openfaas.infer.max-length is "9": the model takes texts of at most 8`},
		"refused, and longer": {length: 9, refuse: true, want: `is "9,refuse"`},
		"another tokenizer":   {graph: textmodeltest.Graph{Rows: 3}, want: "text.tokenizer: tokenizer.json has 6 tokens, and the model has embeddings of 3"},
		"few positions":       {graph: textmodeltest.Graph{Positions: 7}, want: "text.max_length is 8"},
		"a way out of that":   {graph: textmodeltest.Graph{Positions: 7}, length: 7},
	} {
		r, f := registrarOf(t, withTexts(t, c.graph))
		ask(f, "")
		f.Inference.MaxLength, f.Inference.RefuseLong = c.length, c.refuse
		_, models, err := r.Models(t.Context(), f)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		if err == nil && (len(models) != 1 || models[0].Text == "" || !strings.Contains(models[0].Texts, "at most 8 tokens (mean pooling, normalized)")) {
			t.Errorf("%s: %+v", what, models)
		}
	}
	dir := withModels(t, "name: app\nengine: onnx\nmodel: a.onnx\n", "mnist")
	r, f := registrarOf(t, dir)
	ask(f, "")
	f.Inference.RefuseLong = true
	if _, _, err := r.Models(t.Context(), f); err == nil || !strings.Contains(err.Error(), annotation.InferMaxLength+` is "refuse": the model takes no texts`) {
		t.Errorf("a model without texts: %v", err)
	}
}

// counter counts checks.
type counter struct {
	TextChecker
	checks int
}

func (c *counter) CheckTexts(ctx context.Context, b *bundle.Bundle, file, texts string, tokens int) error {
	c.checks++
	return c.TextChecker.CheckTexts(ctx, b, file, texts, tokens)
}

// What identifies the texts changes with the tokenizer and with the settings, and with nothing else.
func TestTextsChange(t *testing.T) {
	r, f := registrarOf(t, withTexts(t, textmodeltest.Graph{}))
	ask(f, "")
	of := func() string {
		t.Helper()
		_, models, err := r.Models(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		return models[0].Text
	}
	dir := filepath.Join(string(r.bundles), "app", "v1")
	edit := func(name, from, to string) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(string(text), from, to, 1)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	first := of()
	edit("config.json", "bert", "BERT")
	if of() != first {
		t.Error("a file that no instance reads changes how texts are taken")
	}
	edit("tokenizer.json", `"a":4`, `"c":4`)
	second := of()
	edit("bundle.yaml", "max_length: 8", "max_length: 7")
	if third := of(); first == second || second == third {
		t.Errorf("texts %s, with another tokenizer %s, another length %s", first, second, third)
	}
	f.Restored = true
	c := &counter{TextChecker: r.Children}
	b, err := r.open(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	models, err := r.uncut(t.Context(), f)
	if err == nil {
		err = SetTexts(t.Context(), c, b, f, models)
	}
	if err != nil || c.checks > 0 || models[0].Text != of() {
		t.Errorf("a function of before is checked again: %d, %+v, %v", c.checks, models, err)
	}
}
