package infaas

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/textmodel/textmodeltest"
)

// Models of texts are compared by the vectors or scores of sample texts.
func TestEvaluateTexts(t *testing.T) {
	const embed = "engine: onnx\nmodel: model.onnx\ntext: {max_length: 8, pad: \"[PAD]\", pooling: mean}\n"
	const rerank = "engine: onnx\nmodel: model.onnx\ntext: {task: rerank, max_length: 8, pad: \"[PAD]\"}\n"
	for manifest, labels := range map[string]int64{embed: 0, rerank: 1} {
		dir := textmodeltest.Lay(t, nil)
		file, other := filepath.Join(dir, "model.onnx"), filepath.Join(dir, "other.onnx")
		textmodeltest.Graph{Labels: labels}.Write(t, file)
		textmodeltest.Graph{Labels: labels, Roberta: true, Positions: 99}.Write(t, other)
		if err := os.WriteFile(filepath.Join(dir, bundle.ManifestFile), []byte(manifest), 0o644); err != nil {
			t.Fatal(err)
		}
		f := figures(t, "model", "evaluate", file, "--against", file, "--texts", dir, "--prepared", t.TempDir())
		if f["agreement"] != 100 || math.Abs(f["min_likeness"]-1) > 1e-6 || f["rows"] != 64 || f["rps"] <= 0 {
			t.Errorf("against itself: %v", f)
		}
		f = figures(t, "model", "evaluate", other, "--against", file, "--texts", dir, "--prepared", t.TempDir())
		if f["agreement"] > 90 || f["min_likeness"] >= minLikeness {
			t.Errorf("against a model that counts positions otherwise: %v", f)
		}
		_, err := execute(t, "model", "evaluate", file, "--texts", t.TempDir(), "--prepared", t.TempDir())
		if err == nil || !strings.Contains(err.Error(), bundle.ManifestFile) {
			t.Errorf("no bundle: %v", err)
		}
	}
}

func TestLikeness(t *testing.T) {
	nan := math.NaN()
	vectors := &texts{reader: textReader(t, bundle.Text{Task: bundle.TaskEmbed, Pooling: bundle.PoolNone}, 2)}
	scores := &texts{reader: textReader(t, bundle.Text{Task: bundle.TaskRerank}, 1)}
	for _, c := range []struct {
		of         *texts
		old, fresh []float64
		want       float64
	}{
		{vectors, []float64{3, 4}, []float64{6, 8}, 1}, {vectors, []float64{1, 0}, []float64{0, 1}, 0},
		{vectors, []float64{1, 0}, []float64{0, 0}, 0}, {vectors, []float64{1, nan}, []float64{1, 1}, 0},
		{scores, []float64{0.5}, []float64{0.25}, 0.75}, {scores, []float64{0.5}, []float64{nan}, 0},
	} {
		if got := c.of.likeness(c.old, c.fresh); !(math.Abs(got-c.want) <= 1e-12) {
			t.Errorf("%v and %v: %v, want %v", c.old, c.fresh, got, c.want)
		}
	}
}

// textReader reads texts for a model with one output.
func textReader(t *testing.T, settings bundle.Text, size int64) *text.Reader {
	t.Helper()
	var inputs []tensor.Info
	for _, name := range []string{"input_ids", "attention_mask"} {
		inputs = append(inputs, tensor.Info{Name: name, Type: tensor.Int64, Shape: []int64{-1, -1}})
	}
	settings.Pad, settings.MaxLength = "[PAD]", 8
	outputs := []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, size}}}
	dir := t.TempDir()
	settings.Tokenizer = "tokenizer.json"
	if err := os.WriteFile(filepath.Join(dir, settings.Tokenizer), []byte(textmodeltest.Tokenizer), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := text.ReadFiles(dir, &settings)
	if err != nil {
		t.Fatal(err)
	}
	r, err := text.New(files, settings, inputs, outputs, text.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
