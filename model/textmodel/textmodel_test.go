package textmodel

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/textmodel/textmodeltest"
)

type graph = textmodeltest.Graph

// changed is a short form of a map.
func changed(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// denseModules has a layer between the pooling and the normalization.
const denseModules = `[{"type":"a.Transformer"},{"path":"1_Pooling","type":"b.Pooling"},
	{"path":"2_Dense","type":"sentence_transformers.models.Dense"},{"path":"3_Normalize","type":"c.Normalize"}]`

// Folders give the field text.
func TestRecognise(t *testing.T) {
	reranker := `{"architectures": ["XLMRobertaForSequenceClassification"], "model_type": "xlm-roberta", "id2label": {"0": "LABEL_0"},
		"max_position_embeddings": 514, "pad_token_id": 1}`
	mean := bundle.Text{Task: bundle.TaskEmbed, Tokenizer: tokenizerFile, MaxLength: 8, Pad: "[PAD]", Pooling: bundle.PoolMean, Normalize: true}
	with := func(change func(*bundle.Text)) *bundle.Text {
		text := mean
		change(&text)
		return &text
	}
	bounded := with(func(t *bundle.Text) { t.MaxLength = 16 })
	for what, c := range map[string]struct {
		changed map[string]string
		want    *bundle.Text
		note    string
	}{
		"the whole": {nil, &mean, ""},
		"cls": {changed("1_Pooling/config.json", `{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}`),
			with(func(t *bundle.Text) { t.Pooling = bundle.PoolFirst }), ""},
		"last": {changed("1_Pooling/config.json", `{"pooling_mode_lasttoken": true}`), with(func(t *bundle.Text) { t.Pooling = bundle.PoolLast }), ""},
		"max":  {changed("1_Pooling/config.json", `{"pooling_mode_max_tokens": true}`), with(func(t *bundle.Text) { t.Pooling = bundle.PoolMax }), ""},
		"weighted mean": {changed("1_Pooling/config.json", `{"pooling_mode_weightedmean_tokens": true}`),
			with(func(t *bundle.Text) { t.Pooling = bundle.PoolWeighted }), ""},
		"dense": {changed(modulesFile, denseModules, "2_Dense/config.json", `{"activation_function": "torch.nn.modules.activation.Tanh"}`, "2_Dense/model.safetensors", "x"),
			with(func(t *bundle.Text) {
				t.Dense = []bundle.Dense{{File: "2_Dense/model.safetensors", Activation: bundle.ActivationTanh}}
			}), ""},
		"a later version's pooling": {changed("1_Pooling/config.json", `{"pooling_mode": "cls", "pooling_mode_mean_tokens": true}`),
			with(func(t *bundle.Text) { t.Pooling = bundle.PoolFirst }), ""},
		"without normalization": {changed(modulesFile, `[{"path":"","type":"a.Transformer"},{"path":"1_Pooling","type":"b.Pooling"}]`),
			with(func(t *bundle.Text) { t.Normalize = false }), ""},
		"a length above the positions": {changed(lengthConfig, `{"max_seq_length": 64}`), bounded, ""},
		"the tokenizer's length":       {changed(lengthConfig, "", tokenizerConfig, `{"model_max_length": 5, "pad_token": {"content": "[PAD]"}}`), with(func(t *bundle.Text) { t.MaxLength = 5 }), ""},
		"no length":                    {changed(lengthConfig, `{"max_seq_length": null}`, tokenizerConfig, `{"model_max_length": 1000000000000000019884624838656, "pad_token": "[PAD]"}`), bounded, ""},
		"special tokens":               {changed(tokenizerConfig, "", specialTokens, `{"pad_token": {"content": "[PAD]", "lstrip": false}}`), &mean, ""},
		"prompts": {changed(sentenceConfig, `{"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": null}`), &mean,
			`not put before texts: query "query: "`},
		"more models":  {changed("onnx/model_O1.onnx", "x", "onnx/model_qint8.onnx", "y"), &mean, "there, too: onnx/model_O1.onnx, onnx/model_qint8.onnx"},
		"a reranker":   {changed(modelConfig, reranker, modulesFile, "", lengthConfig, ""), &bundle.Text{Task: bundle.TaskRerank, Tokenizer: tokenizerFile, MaxLength: 512, Pad: "[PAD]"}, ""},
		"a classifier": {changed(modelConfig, `{"architectures": ["BertForSequenceClassification"]}`, modulesFile, ""), nil, "classifier with 2 labels"},
		"no modules":   {changed(modulesFile, ""), nil, "takes token ids and no texts"},
		"a folder for the transformer": {changed(modulesFile, `[{"path":"0_Transformer","type":"a.Transformer"},{"path":"1_Pooling","type":"b.Pooling"}]`,
			tokenizerFile, "", "0_Transformer/tokenizer.json", textmodeltest.Tokenizer, lengthConfig, "", "0_Transformer/"+lengthConfig, `{"max_seq_length": 7}`),
			with(func(t *bundle.Text) {
				t.Tokenizer, t.MaxLength, t.Normalize = "0_Transformer/tokenizer.json", 7, false
			}), ""},
	} {
		dir := textmodeltest.Lay(t, c.changed)
		graph{}.Write(t, filepath.Join(dir, "onnx", "model.onnx"))
		f, err := Recognise(dir, dir)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got := f.Manifest.Text; (got == nil) != (c.want == nil) || !reflect.DeepEqual(got, c.want) || f.Manifest.Model != "onnx/model.onnx" {
			t.Errorf("%s: %+v, %+v, want %+v", what, f.Manifest, got, c.want)
		}
		if notes := strings.Join(f.Notes, "\n"); c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
			t.Errorf("%s: notes %q, want %q", what, notes, c.note)
		}
	}
}

// Errors name the file and the fix.
func TestRecogniseRefuses(t *testing.T) {
	onnx := "onnx/model.onnx"
	for what, c := range map[string]struct {
		changed map[string]string
		want    string
	}{
		"another pooling":        {changed("1_Pooling/config.json", `{"pooling_mode_mean_sqrt_len_tokens": true}`), `1_Pooling/config.json: the pooling is "mean_sqrt_len"; instances know mean`},
		"two poolings":           {changed("1_Pooling/config.json", `{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true}`), `"cls+mean"`},
		"a list of poolings":     {changed("1_Pooling/config.json", `{"pooling_mode": ["max", "mean"]}`), `"max+mean"`},
		"no pooling's settings":  {changed("1_Pooling/config.json", ""), "1_Pooling/config.json: modules.json names it"},
		"a network of Dropout":   {changed(modulesFile, `[{"type":"a.Transformer"},{"path":"1_Pooling","type":"b.Pooling"},{"path":"2_Dropout","type":"sentence_transformers.models.Dropout"}]`), `module 2 is "sentence_transformers.models.Dropout"`},
		"dense after normalize":  {changed(modulesFile, `[{"type":"a.Transformer"},{"path":"1_Pooling","type":"b.Pooling"},{"type":"N.Normalize"},{"path":"2_Dense","type":"D.Dense"}]`), `module 3 is "D.Dense"`},
		"dense without settings": {changed(modulesFile, denseModules), "2_Dense/config.json: modules.json names it"},
		"dense of an activation": {changed(modulesFile, denseModules, "2_Dense/config.json", `{"activation_function": "torch.nn.modules.activation.GELU"}`), `2_Dense/config.json: activation_function is "torch.nn.modules.activation.GELU"`},
		"dense of tokens":        {changed(modulesFile, denseModules, "2_Dense/config.json", `{"activation_function": "Tanh", "module_input_name": "token_embeddings"}`), `of "token_embeddings"`},
		"dense of PyTorch":       {changed(modulesFile, denseModules, "2_Dense/config.json", `{"activation_function": "Tanh"}`, "2_Dense/pytorch_model.bin", "x"), "2_Dense/model.safetensors: it is missing"},
		"static":                 {changed(modulesFile, `[{"type":"a.StaticEmbedding"}]`), "StaticEmbedding"},
		"no module of pooling":   {changed(modulesFile, `[{"type":"a.Transformer"}]`), "there is no module Pooling"},
		"no modules in the list": {changed(modulesFile, `[]`), "lists no modules"},
		"a path out":             {changed(modulesFile, `[{"path":"../x","type":"a.Transformer"}]`), "leads out of the folder"},
		"no padding":             {changed(tokenizerConfig, `{"pad_token": null}`), "pad_token is missing"},
		"no length":              {changed(tokenizerConfig, `{"pad_token": "[PAD]"}`, lengthConfig, "", modelConfig, "{}"), "max_seq_length"},
		"capital letters":        {changed(lengthConfig, `{"max_seq_length": 8, "do_lower_case": true}`, tokenizerFile, strings.Replace(textmodeltest.Tokenizer, `"lowercase":true`, `"lowercase":false`, 1)), "do_lower_case is true"},
		"no tokenizer":           {changed(tokenizerFile, "", "vocab.txt", "a"), "there is no tokenizer.json"},
		"weights of PyTorch":     {changed(onnx, "", "model.safetensors", "x"), "no ONNX file, only model.safetensors; onnx/model.onnx, which is to be in the folder, comes from `pip install"},
		"no weights":             {changed(onnx, ""), "neither ONNX nor other weights"},
		"several models":         {changed(onnx, "", "onnx/a.onnx", "x", "onnx/b.onnx", "x"), "it has 2 ONNX files, onnx/a.onnx, onnx/b.onnx"},
		"wrong JSON":             {changed(modelConfig, "{"), "config.json: "},
		"another type":           {changed(lengthConfig, `{"max_seq_length": "long"}`), "sentence_bert_config.json: "},
	} {
		all := maps.Clone(c.changed)
		if _, is := all[onnx]; !is {
			all[onnx] = "x"
		}
		if _, err := Recognise(textmodeltest.Lay(t, all), "x"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\ndoes not say %q", what, err, c.want)
		}
	}
	for what, all := range map[string]map[string]string{
		"nothing of texts": changed(tokenizerFile, "", modulesFile, "", onnx, "x"),
		"TensorFlow":       changed("saved_model.pb", "x"),
	} {
		if f, err := Recognise(textmodeltest.Lay(t, all), "x"); f != nil || err != nil {
			t.Errorf("%s: %+v, %v", what, f, err)
		}
	}
}

// Models and tokenizers that do not fit are refused, with the field's name.
func TestCheck(t *testing.T) {
	embed := bundle.Text{Task: bundle.TaskEmbed, Tokenizer: tokenizerFile, MaxLength: 8, Pad: "[PAD]", Pooling: bundle.PoolMean}
	pooled := embed
	pooled.Pooling = bundle.PoolNone
	rerank := bundle.Text{Task: bundle.TaskRerank, Tokenizer: tokenizerFile, MaxLength: 8, Pad: "[PAD]"}
	with := func(text bundle.Text, change func(*bundle.Text)) bundle.Text {
		change(&text)
		return text
	}
	for what, c := range map[string]struct {
		graph   graph
		text    bundle.Text
		changed map[string]string
		max     int
		want    string
	}{
		"a BERT":                {text: embed},
		"without types":         {graph: graph{Inputs: []string{maskInput}}, text: embed},
		"32 bits":               {graph: graph{Kind: onnxpb.TensorProto_INT32}, text: embed},
		"more embeddings":       {graph: graph{Rows: 64}, text: embed},
		"a pooled output":       {graph: graph{Pooled: true}, text: pooled},
		"a reranker":            {graph: graph{Labels: 1}, text: rerank},
		"a shorter length":      {graph: graph{Positions: 4}, text: embed, max: 4},
		"a RoBERTa":             {graph: graph{Positions: 9, Roberta: true}, text: embed},
		"a large vocabulary":    {graph: graph{Rows: 5}, text: embed, want: "text.tokenizer: tokenizer.json has 6 tokens, and the model has embeddings of 5"},
		"no mask":               {graph: graph{Inputs: []string{typesInput}}, text: embed, want: "no input attention_mask"},
		"positions":             {graph: graph{Inputs: []string{maskInput, positionInput}}, text: embed, want: "position_ids"},
		"an unknown input":      {graph: graph{Inputs: []string{maskInput, "pixels"}}, text: embed, want: `input "pixels"`},
		"floats":                {graph: graph{Kind: onnxpb.TensorProto_FLOAT}, text: embed, want: "input_ids has the type FP32"},
		"a fixed length":        {graph: graph{Fixed: 7}, text: embed, want: "text.max_length is 8, and the model's input input_ids has the fixed length 7"},
		"a pooled one pooled":   {graph: graph{Pooled: true}, text: embed, want: "text.pooling is mean, and the output sentence_embedding has 2 dimensions"},
		"an unpooled one":       {text: pooled, want: "text.pooling is none, and the output last_hidden_state has 3"},
		"an absent output":      {text: with(embed, func(t *bundle.Text) { t.Output = "x" }), want: `text.output is "x"`},
		"three labels":          {graph: graph{Labels: 3}, text: rerank, want: "one score for each text"},
		"no logits":             {text: rerank, want: "text.task is rerank"},
		"few positions":         {graph: graph{Positions: 7}, text: embed, want: "text.max_length is 8, and the model has embeddings of 7 positions"},
		"few of a RoBERTa":      {graph: graph{Positions: 8, Roberta: true}, text: embed, want: "embeddings of 7 positions"},
		"a fixed one that does": {graph: graph{Fixed: 128}, text: embed},
		"no room for a text":    {text: embed, max: 1, want: "text.max_length: "},
		"a longer length":       {text: embed, max: 9, want: "the maximum length is 9 tokens; text.max_length of bundle.yaml is 8"},
		"one type for pairs":    {graph: graph{Labels: 1, Types: 1}, text: rerank, want: "gives tokens the type 1, and the model knows 1"},
		"no such padding":       {text: with(embed, func(t *bundle.Text) { t.Pad = "<pad>" }), want: `text.pad is "<pad>"`},
		"no tokenizer":          {text: embed, changed: changed(tokenizerFile, ""), want: "text.tokenizer: "},
		"a wrong tokenizer":     {text: embed, changed: changed(tokenizerFile, `{"version":"1.0","model":{"type":"Magic"}}`), want: "text.tokenizer: tokenizer.json: "},
	} {
		dir := textmodeltest.Lay(t, c.changed)
		file := filepath.Join(dir, "model.onnx")
		c.graph.Write(t, file)
		err := Check(dir, &c.text, file, c.max)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	dir := textmodeltest.Lay(t, changed("model.onnx", "nonsense"))
	if err := Check(dir, &embed, filepath.Join(dir, "model.onnx"), 0); err == nil {
		t.Error("a file that is no model passes")
	}
}

// A bundle is made of a folder with links, as a hub's client keeps it, without other programs' weights.
func TestWrite(t *testing.T) {
	from := textmodeltest.Lay(t, changed(tokenizerFile, "", "model.safetensors", "x", ".git/config", "x"))
	blobs := t.TempDir()
	if err := os.WriteFile(filepath.Join(blobs, "blob"), []byte(textmodeltest.Tokenizer), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(blobs, "blob"), filepath.Join(from, tokenizerFile)); err != nil {
		t.Fatal(err)
	}
	graph{}.Write(t, filepath.Join(from, "onnx", "model.onnx"))
	f, err := Recognise(from, from)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	b, err := Write(root, "team/minilm:v1", from, f, bundle.Manifest{Description: "d"})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = bundle.Open(root, "team/minilm:v1"); err != nil || b.Text == nil || b.Text.MaxLength != 8 || b.Name != "minilm" || b.Description != "d" {
		t.Fatalf("%+v, %v", b, err)
	}
	if info, err := os.Lstat(filepath.Join(b.Dir, tokenizerFile)); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the tokenizer: %v, %v", info, err)
	}
	for _, name := range []string{"model.safetensors", ".git"} {
		if _, err := os.Stat(filepath.Join(b.Dir, name)); err == nil {
			t.Errorf("the bundle has %s", name)
		}
	}
	graph{Rows: 2}.Write(t, filepath.Join(from, "onnx", "model.onnx"))
	if _, err := Write(root, "team/minilm:v1", from, f, bundle.Manifest{}); err == nil || !strings.Contains(err.Error(), "text.tokenizer") {
		t.Errorf("a tokenizer that does not fit: %v", err)
	}
	if _, err := bundle.Open(root, "team/minilm:v1"); err != nil {
		t.Errorf("the bundle before is gone: %v", err)
	}
}

// What no ONNX model needs of a hub's folder is known by the names.
func TestUnused(t *testing.T) {
	hub := []string{"1_Pooling/config.json", "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin", "README.md", "config.json",
		"model.safetensors", "modules.json", "onnx/model.onnx", "onnx/model.onnx_data", "onnx/model_O1.onnx", "onnx/model_O1.onnx_data",
		"openvino/openvino_model.bin", "pytorch_model-00001-of-00002.bin", "tokenizer.json"}
	want := []string{"2_Dense/pytorch_model.bin", "model.safetensors", "onnx/model_O1.onnx", "onnx/model_O1.onnx_data",
		"openvino/openvino_model.bin", "pytorch_model-00001-of-00002.bin"}
	if got := Unused(hub); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for what, names := range map[string][]string{
		"a bundle":   append([]string{bundle.ManifestFile}, hub...),
		"TensorFlow": {"saved_model.pb", "variables/variables.data-00000-of-00001", "model.safetensors"},
		"no ONNX":    {"config.json", "model.safetensors"},
	} {
		if got := Unused(names); len(got) > 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
	if got := Unused([]string{"a.onnx", "b.onnx", "tf_model.h5"}); !slices.Equal(got, []string{"tf_model.h5"}) {
		t.Errorf("several models: %q", got)
	}
}

// Whatever the files have in them, nothing panics.
func FuzzRecognise(f *testing.F) {
	f.Add(textmodeltest.Files[modulesFile], textmodeltest.Files[modelConfig], textmodeltest.Files[tokenizerConfig], textmodeltest.Files[lengthConfig], textmodeltest.Files["1_Pooling/config.json"])
	f.Add("[null]", "null", `{"pad_token":1}`, `{"max_seq_length":1e300}`, `{"pooling_mode":[]}`)
	f.Fuzz(func(t *testing.T, modules, config, tokens, lengths, pooling string) {
		dir := textmodeltest.Lay(t, changed(modulesFile, modules, modelConfig, config, tokenizerConfig, tokens, lengthConfig, lengths,
			"1_Pooling/config.json", pooling, "model.onnx", "x"))
		f, err := Recognise(dir, dir)
		if err == nil && f != nil && f.Manifest.Text != nil {
			if err := f.Manifest.WriteFile(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := bundle.OpenDir(dir); err != nil {
				t.Errorf("%+v: %v", f.Manifest.Text, err)
			}
		}
	})
}
