package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// The tasks of [Text].
const (
	// TaskEmbed: a text becomes one vector.
	TaskEmbed = "embed"
	// TaskRerank: a query and a document become a score.
	TaskRerank = "rerank"
)

// The values of [Text.Pooling]: how a text's vector is made of those of its tokens.
const (
	// PoolMean is the mean over the tokens.
	PoolMean = "mean"
	// PoolFirst is the first token's, as of BERT's [CLS].
	PoolFirst = "cls"
	// PoolLast is the last token's.
	PoolLast = "last"
	// PoolNone: the model's output is one vector for each text.
	PoolNone = "none"
)

// maxTextLength bounds Text.MaxLength.
const maxTextLength = 1 << 17

// Text says how an ONNX model of token ids takes texts.
type Text struct {
	// Task is [TaskEmbed], the default, or [TaskRerank].
	Task string `yaml:"task,omitempty"`
	// Tokenizer is the file that turns texts into token ids, in Hugging Face's format, relative to the
	// bundle. The default is tokenizer.json.
	Tokenizer string `yaml:"tokenizer,omitempty"`
	// MaxLength is the maximum number of tokens, special ones included. Longer texts are cut.
	MaxLength int `yaml:"max_length"`
	// Pad is the token to pad with, such as [PAD].
	Pad string `yaml:"pad"`
	// Output is the model's output with the vectors or scores. The default is the first.
	Output string `yaml:"output,omitempty"`
	// Pooling is [PoolMean], [PoolFirst], [PoolLast] or [PoolNone]. It is for embeddings.
	Pooling string `yaml:"pooling,omitempty"`
	// Normalize gives vectors the length 1.
	Normalize bool `yaml:"normalize,omitempty"`
}

// ReadText reads how the model of the bundle in a directory takes texts. It returns nil if it takes none, or if the
// directory has no manifest.
func ReadText(dir string) (*Text, error) {
	inside, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	defer inside.Close()
	m, err := readManifest(inside)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return m.Text, nil
}

// validateText fills in the defaults of the field text and checks it.
func (m *Manifest) validateText() error {
	t := m.Text
	if t == nil {
		return nil
	}
	if t.Task == "" {
		t.Task = TaskEmbed
	}
	if t.Tokenizer == "" {
		t.Tokenizer = "tokenizer.json"
	}
	pools := []string{PoolMean, PoolFirst, PoolLast, PoolNone}
	switch {
	case m.Engine != EngineONNX || m.Handler != "" || m.Models != nil:
		return fmt.Errorf("%w: text is for one ONNX model without a handler; remove it", ErrManifest)
	case t.Task != TaskEmbed && t.Task != TaskRerank:
		return fmt.Errorf("%w: text.task is %q; it must be %s or %s", ErrManifest, t.Task, TaskEmbed, TaskRerank)
	case t.MaxLength < 1 || t.MaxLength > maxTextLength:
		return fmt.Errorf("%w: text.max_length is %d; write the maximum number of tokens, 1 to %d", ErrManifest, t.MaxLength, maxTextLength)
	case t.Pad == "":
		return fmt.Errorf("%w: text.pad is missing; write the token to pad with, as \"[PAD]\"", ErrManifest)
	case t.Task == TaskEmbed && !slices.Contains(pools, t.Pooling):
		return fmt.Errorf("%w: text.pooling is %q; it must be %s", ErrManifest, t.Pooling, strings.Join(pools, ", "))
	case t.Task == TaskRerank && (t.Pooling != "" || t.Normalize):
		return fmt.Errorf("%w: text.pooling and text.normalize are for embeddings; remove them", ErrManifest)
	}
	return nil
}
