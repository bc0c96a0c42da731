// Package textmodel recognises folders of models that take texts, as sentence-transformers and optimum write
// them, and refuses a tokenizer that does not fit its model. It runs no model and reads no weights. Turning
// texts into tokens and vectors is the instance's work.
//
// Begin with [Recognise], which fills in the field text of a bundle.yaml, and [Check].
package textmodel

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// Folder is what a folder says of its model.
type Folder struct {
	// Manifest has the model's file and, if the model takes texts, the field text.
	Manifest bundle.Manifest
	// Notes are sentences for the user: what was left open, and what the folder has that is not used.
	Notes []string
	// Unused are files that no ONNX model needs, such as the same weights for PyTorch, relative to the folder.
	Unused []string
}

// The files of such folders.
const (
	tokenizerFile   = "tokenizer.json"
	tokenizerConfig = "tokenizer_config.json"
	specialTokens   = "special_tokens_map.json"
	modelConfig     = "config.json"
	modulesFile     = "modules.json"
	lengthConfig    = "sentence_bert_config.json"
	sentenceConfig  = "config_sentence_transformers.json"
	defaultModel    = "model.onnx"
	denseWeights    = "model.safetensors"
	onnxFolder      = "onnx"
)

// asTensors is the way out where a folder's model cannot be given texts.
const asTensors = "To serve the model with token ids instead, write a " + bundle.ManifestFile +
	" with only `engine: onnx` and `model: FILE`, or name the ONNX file as the model"

// exportWhole is the way out where instances do not know what a model does after its Transformer.
const exportWhole = "Export the ONNX model with all its modules, so that an output is one vector for each text, and write a " +
	bundle.ManifestFile + " that names it with `text: {max_length: …, pad: …, output: …, pooling: none}`."

// Recognise reads a folder without a bundle.yaml. It returns nil for one that has neither a tokenizer.json nor a
// modules.json, and for one with a model of TensorFlow. The error names the file and the field that is wrong or missing, and says what to do. A folder whose
// model takes no texts as far as one can see, such as a classifier's, has a manifest without the field text. name is
// what the user calls the folder, or the repository of a hub that it is of.
func Recognise(dir, name string) (*Folder, error) {
	f := reader{dir: dir, name: name}
	modules, err := f.modules()
	if err != nil {
		return nil, err
	}
	base := ""
	if len(modules) > 0 {
		base = modules[0].Path
	}
	tokenizer := f.first(tokenizerFile, base)
	if tokenizer == "" && modules == nil {
		return nil, nil
	}
	f.base = base
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	all, err := f.files()
	if err != nil || slices.ContainsFunc(all, isTensorFlow) {
		return nil, err
	}
	model, others, err := f.chooseModel(all, config)
	if err != nil {
		return nil, err
	}
	out := &Folder{Manifest: bundle.Manifest{Engine: bundle.EngineONNX, Model: model}}
	out.Unused = slices.DeleteFunc(all, func(name string) bool { return !isOtherWeights(name) || isDense(name) })
	if len(others) > 0 {
		out.note("It uses %s. Other ONNX files are there, too: %s. A deployment names one of them with "+
			"com.openfaas.infer.model.", model, some(others))
	}
	t := &bundle.Text{Tokenizer: tokenizer}
	switch {
	case config.labels() == 1 && !hasPooling(modules):
		t.Task = bundle.TaskRerank
	case modules != nil:
		t.Task = bundle.TaskEmbed
		if err := f.setPooling(t, modules); err != nil {
			return nil, err
		}
	case config.labels() > 0:
		out.note("It is a classifier with %d labels, and texts are for embeddings and for rerankers, which have one. So it "+
			"takes token ids and no texts.", config.labels())
		return out, nil
	default:
		out.note("It has a %s, and nothing says how vectors are made of its tokens, so it takes token ids and no texts. "+
			"To embed texts, write a %s with `engine: onnx`, `model: %s` and `text: {max_length: 512, pad: \"[PAD]\", "+
			"pooling: mean}`, with the values that the model was trained with.", tokenizerFile, bundle.ManifestFile, model)
		return out, nil
	}
	if tokenizer == "" {
		return nil, fmt.Errorf("there is no %s, and the tokenizer's other files are not enough; this writes one into the folder "+
			"tokenizer: "+
			"`python3 -c \"from transformers import AutoTokenizer as T; T.from_pretrained('%s').save_pretrained('tokenizer')\"`",
			tokenizerFile, path.Join(name, base))
	}
	if err := f.setTokens(t, config); err != nil {
		return nil, err
	}
	out.Manifest.Text = t
	return out, f.notePrompts(out)
}

func (f *Folder) note(format string, values ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, values...))
}

// hasPooling reports whether the modules make vectors.
func hasPooling(modules []module) bool {
	return slices.ContainsFunc(modules, func(m module) bool { return m.kind() == "Pooling" })
}

// setPooling sets how vectors are made of the tokens', and through which layers they go.
func (f reader) setPooling(t *bundle.Text, modules []module) error {
	for i, m := range modules {
		kind := m.kind()
		switch {
		case i == 0 && kind == "Transformer":
		case i == 1 && kind == "Pooling":
			pooling, err := f.pooling(m)
			if err != nil {
				return err
			}
			t.Pooling = pooling
		case i >= 2 && kind == "Dense" && !t.Normalize:
			layer, err := f.dense(m)
			if err != nil {
				return err
			}
			t.Dense = append(t.Dense, layer)
		case i >= 2 && kind == "Normalize":
			t.Normalize = true
		default:
			return fmt.Errorf("%s: module %d is %q; instances know a Transformer, then Pooling, Dense and Normalize. %s %s",
				modulesFile, i, m.Type, exportWhole, asTensors)
		}
	}
	if t.Pooling == "" {
		return fmt.Errorf("%s: there is no module Pooling, so nothing says how a text's vector is made; write a %s with "+
			"`text: {max_length: …, pad: …, pooling: mean}`. %s", modulesFile, bundle.ManifestFile, asTensors)
	}
	return nil
}

// setTokens sets the maximum length and the token to pad with.
func (f reader) setTokens(t *bundle.Text, config config) error {
	tokens, err := f.tokenizerSettings()
	if err != nil {
		return err
	}
	lengths, err := f.lengths()
	if err != nil {
		return err
	}
	if lengths.LowerCase && !f.lowers(t.Tokenizer) {
		return fmt.Errorf("%s: do_lower_case is true, and %s leaves capital letters alone; give the latter the normalizer "+
			"{\"type\": \"Lowercase\"}, or set do_lower_case to false if the model was trained without", lengthConfig, t.Tokenizer)
	}
	length, from := int64(lengths.MaxLength), lengthConfig+": max_seq_length"
	if length <= 0 && tokens.MaxLength < float64(bundle.MaxTextLength) {
		length, from = int64(tokens.MaxLength), tokenizerConfig+": model_max_length"
	}
	if bound := config.positions(); bound > 0 && (length <= 0 || length > bound) {
		length, from = bound, modelConfig+": max_position_embeddings"
	}
	switch {
	case length <= 0:
		return fmt.Errorf("nothing says how many tokens the model takes; set max_seq_length in %s, for example "+
			"{\"max_seq_length\": 512}", lengthConfig)
	case length > bundle.MaxTextLength:
		return fmt.Errorf("%s is %d; the maximum is %d", from, length, bundle.MaxTextLength)
	}
	t.MaxLength = int(length)
	t.Pad = cmp.Or(string(tokens.Pad), f.padding(t.Tokenizer))
	if t.Pad == "" {
		return fmt.Errorf("%s: pad_token is missing, and %s has none; texts of one batch are padded to the longest one. "+
			"Set pad_token there to a token of the vocabulary, such as \"[PAD]\"; the end token does, because padding is "+
			"masked", tokenizerConfig, specialTokens)
	}
	return nil
}

// notePrompts says which prompts are not put before texts.
func (f reader) notePrompts(out *Folder) error {
	prompts, err := f.prompts()
	if err == nil && len(prompts) > 0 {
		out.note("The prompts of %s are not put before texts: %s. Clients put them there if the model needs them.",
			sentenceConfig, strings.Join(prompts, ", "))
	}
	return err
}

// chooseModel returns the ONNX file to serve and the names of the others.
func (f reader) chooseModel(all []string, c config) (model string, others []string, err error) {
	onnx := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return path.Ext(name) != ".onnx" })
	preferred := []string{defaultModel, path.Join(onnxFolder, defaultModel), path.Join(f.base, defaultModel),
		path.Join(f.base, onnxFolder, defaultModel)}
	top := slices.DeleteFunc(slices.Clone(onnx), func(name string) bool { return strings.Contains(name, "/") })
	if len(top) == 1 {
		preferred = append(preferred[:1], append(top, preferred[1:]...)...)
	}
	for _, name := range preferred {
		if slices.Contains(onnx, name) {
			return name, slices.DeleteFunc(onnx, func(other string) bool { return other == name }), nil
		}
	}
	switch {
	case len(onnx) == 1:
		return onnx[0], nil, nil
	case len(onnx) > 1:
		return "", nil, fmt.Errorf("it has %d ONNX files, %s, and none is %s or %s/%[3]s; give the one to serve that name",
			len(onnx), some(onnx), defaultModel, onnxFolder)
	}
	task := "feature-extraction"
	if c.labels() > 0 {
		task = "text-classification"
	}
	weights := "neither ONNX nor other weights"
	if i := slices.IndexFunc(all, isOtherWeights); i >= 0 {
		weights = fmt.Sprintf("no ONNX file, only %s", all[i])
	}
	return "", nil, fmt.Errorf("it has %s; %s/%s, which is to be in the folder, comes from `pip install "+
		"\"optimum-onnx[onnxruntime]\"` and `optimum-cli export onnx --model %s --library-name transformers --task %s "+
		"%[2]s`", weights, onnxFolder, defaultModel, f.name, task)
}

// isTensorFlow reports whether a file is a model that TensorFlow runs.
func isTensorFlow(name string) bool {
	return path.Base(name) == "saved_model.pb" || path.Ext(name) == ".keras"
}

// isOtherWeights reports whether a file has weights that ONNX Runtime does not read.
func isOtherWeights(name string) bool {
	base := path.Base(name)
	switch path.Ext(base) {
	case ".safetensors", ".h5", ".msgpack", ".ot", ".gguf", ".mlmodel":
		return true
	}
	return strings.Contains(name, ".mlpackage/") ||
		strings.HasPrefix(base, "pytorch_model") && strings.HasSuffix(base, ".bin") ||
		strings.HasPrefix(base, "openvino_model")
}

// isDense reports whether a file has the weights of a module Dense, which instances read.
func isDense(name string) bool {
	return path.Base(name) == denseWeights && strings.Contains(strings.ToLower(path.Dir(name)), "dense")
}

// Unused returns those of a folder's files, by their names, that no ONNX model needs: weights of other programs, and
// the ONNX files beside the one that [Recognise] chooses, with their external data. It returns none of a folder that has
// a bundle.yaml, a model of TensorFlow, or no ONNX file.
func Unused(all []string) (unused []string) {
	if slices.Contains(all, bundle.ManifestFile) || slices.ContainsFunc(all, isTensorFlow) {
		return nil
	}
	model, others, err := reader{}.chooseModel(all, config{})
	if model == "" && len(others) == 0 && !slices.ContainsFunc(all, func(name string) bool { return path.Ext(name) == ".onnx" }) {
		return nil
	}
	for _, name := range all {
		beside := func(other string) bool {
			rest, is := strings.CutPrefix(name, other)
			return is && (rest == "" || rest == "_data" || rest == ".data")
		}
		if isOtherWeights(name) && !isDense(name) || err == nil && slices.ContainsFunc(others, beside) {
			unused = append(unused, name)
		}
	}
	return unused
}

// files lists the folder's files, relative to it, but for hidden ones.
func (f reader) files() (names []string, err error) {
	root, err := filepath.EvalSymlinks(f.dir)
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, file)
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(e.Name(), ".") && e.IsDir():
			return filepath.SkipDir
		case e.IsDir():
			return nil
		}
		names = append(names, filepath.ToSlash(name))
		return nil
	})
	return names, err
}

// first returns the path of a file in the folder or else in base; "" if it is in neither.
func (f reader) first(name, base string) string {
	for _, at := range []string{"", base} {
		if info, err := os.Stat(filepath.Join(f.dir, at, name)); err == nil && info.Mode().IsRegular() {
			return path.Join(at, name)
		}
	}
	return ""
}

// some lists a few names.
func some(names []string) string {
	const few = 5
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}
