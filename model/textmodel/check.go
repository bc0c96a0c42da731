package textmodel

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/tokenizer"
)

// The inputs of a model of texts.
const (
	idsInput      = "input_ids"
	maskInput     = "attention_mask"
	typesInput    = "token_type_ids"
	positionInput = "position_ids"
)

// Check refuses a bundle's model in a file, with its absolute path, if it does not fit the text of the bundle's
// manifest or the tokenizer. maxLength is the maximum number of tokens that a deployment states, 0 for the manifest's.
// It reads no weights. The error names the field, the value and the fix.
func Check(dir string, t *bundle.Text, file string, maxLength int) error {
	text, err := t.ReadTokenizer(dir)
	if err != nil {
		return err
	}
	layers, err := t.ReadLayers(dir)
	if err != nil {
		return err
	}
	return check(t, text, layers, file, maxLength)
}

// CheckFolder is Check for a folder with these contents that is no bundle yet, whose files may be links. A model that
// takes no texts fits.
func CheckFolder(dir string, f *Folder) error {
	t := f.Manifest.Text
	if t == nil {
		return nil
	}
	read := func(name string) ([]byte, error) {
		text, err := reader{dir: dir}.content(name, bundle.MaxTokenizer)
		if err == nil && text == nil {
			err = fmt.Errorf("there is no %s", name)
		}
		return text, err
	}
	text, err := read(t.Tokenizer)
	if err != nil {
		return fmt.Errorf("text.tokenizer: %w", err)
	}
	layers, err := t.Layers(read)
	if err != nil {
		return err
	}
	return check(t, text, layers, filepath.Join(dir, f.Manifest.Model), 0)
}

// check is Check for the content of the tokenizer's file, and the layers of text.dense.
func check(t *bundle.Text, text []byte, layers []bundle.Layer, file string, maxLength int) error {
	if maxLength > t.MaxLength {
		return fmt.Errorf("the maximum length is %d tokens; text.max_length of %s is %d, and the model takes no more",
			maxLength, bundle.ManifestFile, t.MaxLength)
	}
	m, err := model.ReadOutline(file)
	if err != nil {
		return err
	}
	longest := t.MaxLength
	if maxLength > 0 {
		longest = maxLength
	}
	if err := checkInputs(m.Inputs(), longest); err != nil {
		return err
	}
	if err := checkOutput(t, layers, m.Outputs()); err != nil {
		return err
	}
	tokens, err := tokenizer.New(text, tokenizer.Options{})
	if err != nil {
		return fmt.Errorf("text.tokenizer: %s: %w", t.Tokenizer, err)
	}
	pad, ok := tokens.ID(t.Pad)
	if !ok {
		return fmt.Errorf("text.pad is %q, and the vocabulary of %s has no such token; write one that it has", t.Pad, t.Tokenizer)
	}
	if err := encodes(t, tokens, longest); err != nil {
		return fmt.Errorf("text.max_length: %w", err)
	}
	return tables{t, tokens, pad, longest}.check(m.Lookups())
}

// encodes refuses a maximum length that the special tokens alone exceed.
func encodes(t *bundle.Text, tokens *tokenizer.Tokenizer, longest int) (err error) {
	if t.Task == bundle.TaskRerank {
		_, err = tokens.EncodePair("", "", longest)
	} else {
		_, err = tokens.Encode("", longest)
	}
	return err
}

// checkInputs refuses a model that does not take so many token ids, or takes more than an instance makes of texts.
func checkInputs(inputs []tensor.Info, longest int) error {
	var names []string
	for _, in := range inputs {
		names = append(names, in.Name)
		switch {
		case in.Name == positionInput:
			return fmt.Errorf("the model has the input %s; instances make %s, %s and %s of texts. Export the model so that it "+
				"counts positions itself", in.Name, idsInput, maskInput, typesInput)
		case in.Name != idsInput && in.Name != maskInput && in.Name != typesInput:
			return fmt.Errorf("the model has the input %q; instances make %s, %s and %s of texts. Export it without, for "+
				"example with --task feature-extraction", in.Name, idsInput, maskInput, typesInput)
		case in.Type != tensor.Int64 && in.Type != tensor.Int32:
			return fmt.Errorf("the model's input %s has the type %s; it must be %s or %s", in.Name, in.Type, tensor.Int64, tensor.Int32)
		case len(in.Shape) != 2:
			return fmt.Errorf("the model's input %s has %d dimensions; it must have two, texts and tokens", in.Name, len(in.Shape))
		case in.Shape[1] > 0 && int64(longest) > in.Shape[1]:
			return fmt.Errorf("text.max_length is %d, and the model's input %s has the fixed length %d; set it to at most that, or "+
				"export the model with a dynamic second dimension", longest, in.Name, in.Shape[1])
		}
	}
	for _, needed := range []string{idsInput, maskInput} {
		if !slices.Contains(names, needed) {
			return fmt.Errorf("the model has no input %s; it has %s. Models of texts need %s and %s", needed,
				strings.Join(names, ", "), idsInput, maskInput)
		}
	}
	return nil
}

// checkOutput refuses an output that the pooling, a layer of text.dense, or a reranker cannot use.
func checkOutput(t *bundle.Text, layers []bundle.Layer, outputs []tensor.Info) error {
	if len(outputs) == 0 {
		return fmt.Errorf("the model has no output")
	}
	out := outputs[0]
	if t.Output != "" {
		i := slices.IndexFunc(outputs, func(o tensor.Info) bool { return o.Name == t.Output })
		if i < 0 {
			return fmt.Errorf("text.output is %q; the model has %s", t.Output, tensor.Describe(outputs))
		}
		out = outputs[i]
	}
	rank := len(out.Shape)
	switch {
	case !out.Type.Float():
		return fmt.Errorf("text.output: the output %s has the type %s; it must be of floating-point numbers. The model has %s",
			out.Name, out.Type, tensor.Describe(outputs))
	case rank == 0: // Unknown. The instance says what comes out.
		return nil
	case t.Task == bundle.TaskRerank && (rank > 2 || rank == 2 && out.Shape[1] > 1):
		return fmt.Errorf("text.task is %s, and the output %s has the shape %v; it must be one score for each text. "+
			"The model has %s; name another one in text.output", t.Task, out.Name, out.Shape, tensor.Describe(outputs))
	case t.Task == bundle.TaskRerank:
		return nil
	case t.Pooling == bundle.PoolNone && rank != 2:
		return fmt.Errorf("text.pooling is %s, and the output %s has %d dimensions; it must have two, texts and numbers. The "+
			"model has %s; name another one in text.output, or choose another pooling", t.Pooling, out.Name, rank, tensor.Describe(outputs))
	case t.Pooling != bundle.PoolNone && rank != 3:
		return fmt.Errorf("text.pooling is %s, and the output %s has %d dimensions; it must have three, texts, tokens and "+
			"numbers. The model has %s; name another one in text.output, or set text.pooling to %s if it is pooled already",
			t.Pooling, out.Name, rank, tensor.Describe(outputs), bundle.PoolNone)
	}
	if size := out.Shape[rank-1]; len(layers) > 0 && size > 0 && size != int64(layers[0].In) {
		return fmt.Errorf("text.dense: %s takes vectors of %d elements, and the output %s has %d; use the layer with which the "+
			"model was trained", t.Dense[0].File, layers[0].In, out.Name, size)
	}
	return nil
}

// tables checks the numbers that the tokenizer makes against the model's tables.
type tables struct {
	*bundle.Text
	tokens *tokenizer.Tokenizer
	pad    int32
	// longest is the maximum number of tokens.
	longest int
}

func (t tables) check(lookups []model.Lookup) error {
	for _, l := range lookups {
		switch {
		case l.Input == idsInput && int64(t.tokens.Size()) > l.Rows:
			return fmt.Errorf("text.tokenizer: %s has %d tokens, and the model has embeddings of %d (%s); use the tokenizer with "+
				"which the model was trained", t.Tokenizer, t.tokens.Size(), l.Rows, l.Weight)
		case l.Input == typesInput:
			if err := t.checkTypes(l); err != nil {
				return err
			}
		case l.Input == "" && isPositions(l.Weight):
			rows := l.Rows
			if l.From == idsInput { // As RoBERTa counts: from the number after that of the token to pad with.
				rows -= int64(t.pad) + 1
			}
			if int64(t.longest) > rows {
				return fmt.Errorf("text.max_length is %d, and the model has embeddings of %d positions (%s); set it to at most that, "+
					"in %s or with com.openfaas.infer.max-length", t.longest, rows, l.Weight, bundle.ManifestFile)
			}
		}
	}
	return nil
}

// isPositions reports whether a table's name is that of embeddings of positions.
func isPositions(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "position") || strings.Contains(name, "wpe")
}

// checkTypes refuses types of tokens that the model does not know: those of pairs, if it ranks, otherwise of texts.
func (t tables) checkTypes(l model.Lookup) error {
	e, err := t.tokens.Encode("a", tokenizer.Unlimited)
	if t.Task == bundle.TaskRerank {
		e, err = t.tokens.EncodePair("a", "b", tokenizer.Unlimited)
	}
	if err != nil {
		return fmt.Errorf("text.tokenizer: %s: %w", t.Tokenizer, err)
	}
	if len(e.TypeIDs) == 0 {
		return nil
	}
	if last := slices.Max(e.TypeIDs); int64(last) >= l.Rows {
		return fmt.Errorf("text.tokenizer: %s gives tokens the type %d, and the model knows %d types (%s); use the tokenizer with "+
			"which the model was trained", t.Tokenizer, last, l.Rows, l.Weight)
	}
	return nil
}
