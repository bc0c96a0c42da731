package textmodel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// maxConfig is the maximum size in bytes of a file of settings. A tokenizer_config.json that lists every added
// token may have 1 MB.
const maxConfig = 16 << 20

// reader reads the files of a folder.
type reader struct {
	// dir is the folder's path, and name what the user calls it.
	dir, name string
	// base is the folder of the Transformer's files, relative to dir; mostly "".
	base string
}

// read decodes a JSON file of settings into a value. It reports false if there is no such file.
func (f reader) read(name string, into any) (bool, error) { return f.decode(name, maxConfig, into) }

// decode is read for a file of at most so many bytes.
func (f reader) decode(name string, most int64, into any) (bool, error) {
	text, err := f.content(name, most)
	if err != nil || text == nil {
		return false, err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// content is that of a file of at most so many bytes, nil if there is none.
func (f reader) content(name string, most int64) ([]byte, error) {
	in, err := os.OpenFile(filepath.Join(f.dir, name), os.O_RDONLY|syscall.O_NONBLOCK, 0) // A pipe would wait.
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if info, err := in.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is not a file", name)
	}
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%s: it has more than %d MiB, the maximum", name, most>>20)
	}
	return text, nil
}

// readFirst is read for a file in base or else in the folder itself.
func (f reader) readFirst(name string, into any) error {
	found, err := f.read(path.Join(f.base, name), into)
	if err == nil && !found && f.base != "" {
		_, err = f.read(name, into)
	}
	return err
}

// module is an entry of modules.json.
type module struct {
	Path string `json:"path"`
	Type string `json:"type"`
}

// kind is the name of the module's class.
func (m module) kind() string { return m.Type[strings.LastIndexByte(m.Type, '.')+1:] }

// modules reads modules.json; nil if there is none.
func (f reader) modules() (all []module, err error) {
	found, err := f.read(modulesFile, &all)
	if err == nil && found && len(all) == 0 {
		err = fmt.Errorf("%s: it lists no modules", modulesFile)
	}
	for i, m := range all {
		if m.Path != "" && !filepath.IsLocal(m.Path) {
			return nil, fmt.Errorf("%s: module %d has the path %q, which leads out of the folder", modulesFile, i, m.Path)
		}
	}
	return all, err
}

// pooled maps sentence-transformers' names of poolings that instances know.
var pooled = map[string]string{
	"mean": bundle.PoolMean, "weightedmean": bundle.PoolWeighted, "max": bundle.PoolMax,
	"cls": bundle.PoolFirst, "lasttoken": bundle.PoolLast,
}

// pooling reads the config.json of the module Pooling.
func (f reader) pooling(m module) (string, error) {
	name := path.Join(m.Path, modelConfig)
	fields := map[string]json.RawMessage{}
	found, err := f.read(name, &fields)
	if err != nil {
		return "", err
	}
	if !found {
		return "", fmt.Errorf("%s: %s names it, and it is missing", name, modulesFile)
	}
	// Earlier versions have a switch for each; later ones one field, a name or a list of names.
	var modes []string
	for key, value := range fields {
		mode, is := strings.CutPrefix(key, "pooling_mode_")
		if is && string(value) == "true" {
			modes = append(modes, strings.TrimSuffix(mode, "_tokens"))
		}
	}
	if raw := fields["pooling_mode"]; raw != nil {
		var one string
		modes = nil
		if json.Unmarshal(raw, &one) == nil {
			modes = strings.Split(one, "+")
		} else if err := json.Unmarshal(raw, &modes); err != nil {
			return "", fmt.Errorf("%s: pooling_mode: %w", name, err)
		}
	}
	slices.Sort(modes)
	for i, mode := range modes {
		modes[i] = strings.TrimSuffix(mode, "_token")
	}
	if len(modes) == 1 && pooled[modes[0]] != "" {
		return pooled[modes[0]], nil
	}
	return "", fmt.Errorf("%s: the pooling is %q; instances know mean, weightedmean, max, cls and lasttoken, one of them. %s %s",
		name, strings.Join(modes, "+"), exportWhole, asTensors)
}

// sentenceVector is sentence-transformers' name of a text's vector.
const sentenceVector = "sentence_embedding"

// dense reads a module Dense.
func (f reader) dense(m module) (bundle.Dense, error) {
	name := path.Join(m.Path, modelConfig)
	var c struct {
		Activation string `json:"activation_function"`
		Input      string `json:"module_input_name"`
		Output     string `json:"module_output_name"`
	}
	found, err := f.read(name, &c)
	if err != nil {
		return bundle.Dense{}, err
	}
	d := bundle.Dense{File: path.Join(m.Path, denseWeights)}
	switch activation := c.Activation[strings.LastIndexByte(c.Activation, '.')+1:]; {
	case !found:
		return d, fmt.Errorf("%s: %s names it, and it is missing", name, modulesFile)
	case activation == "Identity":
		d.Activation = bundle.ActivationIdentity
	case activation == "Tanh":
		d.Activation = bundle.ActivationTanh
	default:
		return d, fmt.Errorf("%s: activation_function is %q; instances know torch's Identity and Tanh. %s %s", name, c.Activation,
			exportWhole, asTensors)
	}
	if of := cmp.Or(c.Input, sentenceVector); of != sentenceVector || cmp.Or(c.Output, of) != of {
		return d, fmt.Errorf("%s: the layer makes %q of %q; instances know layers of %s. %s %s", name, c.Output, c.Input,
			sentenceVector, exportWhole, asTensors)
	}
	if info, err := os.Stat(filepath.Join(f.dir, d.File)); err != nil || !info.Mode().IsRegular() {
		return d, fmt.Errorf("%s: it is missing, and instances read the layer's weights in safetensors only; this writes the "+
			"model with it: `python3 -c \"from sentence_transformers import SentenceTransformer as S; S('%s').save('model')\"`",
			d.File, f.name)
	}
	return d, nil
}

// config is what counts of config.json.
type config struct {
	Architectures []string       `json:"architectures"`
	ModelType     string         `json:"model_type"`
	Positions     float64        `json:"max_position_embeddings"`
	NumLabels     int            `json:"num_labels"`
	Labels        map[string]any `json:"id2label"`
	Pad           *int64         `json:"pad_token_id"`
}

// config reads config.json.
func (f reader) config() (c config, err error) {
	err = f.readFirst(modelConfig, &c)
	return c, err
}

// labels is the number of a classifier's classes, 0 for any other model.
func (c config) labels() int {
	isClassifier := func(name string) bool { return strings.HasSuffix(name, "ForSequenceClassification") }
	switch {
	case !slices.ContainsFunc(c.Architectures, isClassifier):
		return 0
	case len(c.Labels) > 0:
		return len(c.Labels)
	case c.NumLabels > 0:
		return c.NumLabels
	}
	return 2 // transformers' default
}

// afterPad are the types of models whose first position follows the number of the token to pad with.
var afterPad = []string{
	"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "longformer", "data2vec-text", "ibert", "xlm-prophetnet",
}

// positions is the maximum number of tokens, 0 if config.json does not bound it.
func (c config) positions() int64 {
	n := int64(min(max(c.Positions, 0), float64(bundle.MaxTextLength)))
	if n > 0 && slices.Contains(afterPad, c.ModelType) {
		pad := int64(1)
		if c.Pad != nil {
			pad = *c.Pad
		}
		n = max(n-pad-1, 0)
	}
	return n
}

// token is a token in a file of settings: its text, or an object with that as content.
type token string

// UnmarshalJSON implements json.Unmarshaler. A token in any other form counts as none.
func (t *token) UnmarshalJSON(text []byte) error {
	var object struct{ Content string }
	if json.Unmarshal(text, (*string)(t)) != nil && json.Unmarshal(text, &object) == nil {
		*t = token(object.Content)
	}
	return nil
}

// tokenizerSettings are what counts of tokenizer_config.json.
type tokenizerSettings struct {
	MaxLength float64 `json:"model_max_length"`
	Pad       token   `json:"pad_token"`
}

// tokenizerSettings reads tokenizer_config.json, with the token to pad with of special_tokens_map.json.
func (f reader) tokenizerSettings() (s tokenizerSettings, err error) {
	if err := f.readFirst(tokenizerConfig, &s); err != nil {
		return s, err
	}
	if s.Pad == "" {
		var special struct {
			Pad token `json:"pad_token"`
		}
		err = f.readFirst(specialTokens, &special)
		s.Pad = special.Pad
	}
	return s, err
}

// lengths are the settings of sentence_bert_config.json.
type lengths struct {
	MaxLength float64 `json:"max_seq_length"`
	LowerCase bool    `json:"do_lower_case"`
}

func (f reader) lengths() (l lengths, err error) {
	err = f.readFirst(lengthConfig, &l)
	return l, err
}

// padding is the token of the field padding of a tokenizer.json, "" if it has none.
func (f reader) padding(tokenizer string) string {
	var file struct {
		Padding struct {
			Token string `json:"pad_token"`
		} `json:"padding"`
	}
	_, _ = f.decode(tokenizer, bundle.MaxTokenizer, &file) // Check says what is wrong with it.
	return file.Padding.Token
}

// lowers reports whether a tokenizer.json writes letters small.
func (f reader) lowers(tokenizer string) bool {
	var file struct {
		Normalizer json.RawMessage `json:"normalizer"`
	}
	_, _ = f.decode(tokenizer, bundle.MaxTokenizer, &file) // Check says what is wrong with it.
	text := strings.Join(strings.Fields(string(file.Normalizer)), "")
	return strings.Contains(text, `"type":"Lowercase"`) || strings.Contains(text, `"lowercase":true`)
}

// prompts lists the prompts of config_sentence_transformers.json, each as its name and text.
func (f reader) prompts() (all []string, err error) {
	var c struct {
		Prompts map[string]string `json:"prompts"`
	}
	_, err = f.read(sentenceConfig, &c)
	for _, name := range slices.Sorted(maps.Keys(c.Prompts)) {
		if text := c.Prompts[name]; text != "" {
			all = append(all, fmt.Sprintf("%s %q", name, text))
		}
	}
	return all, err
}
