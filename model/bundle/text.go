package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
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
	// PoolWeighted is the mean over the tokens, of which the first counts once, the second twice, and so on.
	PoolWeighted = "weightedmean"
	// PoolMax is the maximum of each element over the tokens.
	PoolMax = "max"
	// PoolFirst is the first token's, as of BERT's [CLS].
	PoolFirst = "cls"
	// PoolLast is the last token's.
	PoolLast = "last"
	// PoolNone: the model's output is one vector for each text.
	PoolNone = "none"
)

// MaxTextLength is the maximum of Text.MaxLength.
const MaxTextLength = 1 << 17

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
	// Pooling is [PoolMean], [PoolWeighted], [PoolMax], [PoolFirst], [PoolLast] or [PoolNone]. It is for embeddings.
	Pooling string `yaml:"pooling,omitempty"`
	// Dense are layers that the vector goes through after that.
	Dense []Dense `yaml:"dense,omitempty"`
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
	pools := []string{PoolMean, PoolWeighted, PoolMax, PoolFirst, PoolLast, PoolNone}
	switch {
	case m.Engine != EngineONNX || m.Handler != "" || m.Models != nil:
		return fmt.Errorf("%w: text is for one ONNX model without a handler; remove it", ErrManifest)
	case t.Task != TaskEmbed && t.Task != TaskRerank:
		return fmt.Errorf("%w: text.task is %q; it must be %s or %s", ErrManifest, t.Task, TaskEmbed, TaskRerank)
	case t.MaxLength < 1 || t.MaxLength > MaxTextLength:
		return fmt.Errorf("%w: text.max_length is %d; write the maximum number of tokens, 1 to %d", ErrManifest, t.MaxLength, MaxTextLength)
	case t.Pad == "":
		return fmt.Errorf("%w: text.pad is missing; write the token to pad with, as \"[PAD]\"", ErrManifest)
	case t.Task == TaskEmbed && !slices.Contains(pools, t.Pooling):
		return fmt.Errorf("%w: text.pooling is %q; it must be %s", ErrManifest, t.Pooling, strings.Join(pools, ", "))
	case t.Task == TaskRerank && (t.Pooling != "" || t.Normalize):
		return fmt.Errorf("%w: text.pooling and text.normalize are for embeddings; remove them", ErrManifest)
	}
	return t.validateDense()
}

// MaxTokenizer is the maximum size in bytes of a tokenizer's file, and of one of [Dense]. The largest that we know have
// some 35 MB.
const MaxTokenizer = 64 << 20

// ReadTokenizer reads the file that [Text.Tokenizer] names in a bundle's directory. It follows no link out of
// that. The error begins with the field.
func (t *Text) ReadTokenizer(dir string) ([]byte, error) {
	file, err := readInside(dir, t.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("text.tokenizer: %w", err)
	}
	return file, nil
}

// readInside reads a file of at most [MaxTokenizer] bytes in a bundle's directory.
func readInside(dir, name string) ([]byte, error) {
	inside, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer inside.Close()
	f, err := inside.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // A pipe would wait for its other end.
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%q in the bundle is not a file", name)
	}
	file, err := io.ReadAll(io.LimitReader(f, MaxTokenizer+1))
	switch {
	case err != nil:
		return nil, err
	case len(file) > MaxTokenizer:
		return nil, fmt.Errorf("%q has more than %d MiB, the maximum", name, MaxTokenizer>>20)
	}
	return file, nil
}

// Describe is the end of a sentence about what the model does with texts, such as "embeds texts of at most 256
// tokens (mean pooling, normalized)".
func (t *Text) Describe() string {
	if t.Task == TaskRerank {
		return fmt.Sprintf("ranks documents for a query, of at most %d tokens together", t.MaxLength)
	}
	pooling := map[string]string{
		PoolMean: "mean pooling", PoolWeighted: "pooling by the weighted mean", PoolMax: "pooling by the maximum",
		PoolFirst: "pooling by the first token", PoolLast: "pooling by the last token",
		PoolNone: "pooled in the model",
	}[t.Pooling]
	if n := len(t.Dense); n == 1 {
		pooling += ", a dense layer"
	} else if n > 1 {
		pooling += fmt.Sprintf(", %d dense layers", n)
	}
	if t.Normalize {
		pooling += ", normalized"
	}
	return fmt.Sprintf("embeds texts of at most %d tokens (%s)", t.MaxLength, pooling)
}
