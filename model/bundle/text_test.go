package bundle_test

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
)

func TestText(t *testing.T) {
	head := "engine: onnx\nmodel: model.onnx\ntext:\n  "
	m, err := bundle.ParseManifest([]byte(head + "max_length: 256\n  pad: '[PAD]'\n  pooling: mean"))
	if err != nil || m.Text.Task != bundle.TaskEmbed || m.Text.Tokenizer != "tokenizer.json" || m.Text.MaxLength != 256 {
		t.Fatalf("%+v, %v", m.Text, err)
	}
	for wrong, want := range map[string]string{
		"max_length: 256\n  pad: a\n  pooling: sum":                                       "text.pooling",
		"max_length: 9\n  pad: a\n  pooling: mean\n  dense: [{}]":                         "text.dense: layer 0 has no file",
		"max_length: 9\n  pad: a\n  pooling: max\n  dense: [{file: ../a}]":                "text.dense",
		"max_length: 9\n  pad: a\n  pooling: max\n  dense: [{file: a, activation: gelu}]": "it must be identity or tanh",
		"task: rerank\n  max_length: 9\n  pad: a\n  dense: [{file: a}]":                   "text.dense is for embeddings",
		"max_length: 0\n  pad: a\n  pooling: mean":                                        "text.max_length",
		"max_length: 9\n  pooling: mean":                                                  "text.pad",
		"task: generate\n  max_length: 9\n  pad: a":                                       "text.task",
		"task: rerank\n  max_length: 9\n  pad: a\n  normalize: true":                      "for embeddings",
		"tokenizer: ../t.json\n  max_length: 9\n  pad: a\n  pooling: mean":                "text.tokenizer",
		"max_length: 9\n  pad: a\n  pooling: mean\nhandler: handler.go":                   "text is for one ONNX model",
		"max_length: 9\n  pad: a\n  pooling: mean\n  unknown: 1\nmode: http\n":            "unknown",
	} {
		if _, err := bundle.ParseManifest([]byte(head + wrong)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not name %q", wrong, err, want)
		}
	}
	if _, err := bundle.ParseManifest([]byte("text: {max_length: 9}\nprocess: ./a")); err == nil || !strings.Contains(err.Error(), "text") {
		t.Errorf("a program with text: %v", err)
	}
}
