// Package text turns texts into the rows of token ids that a model takes, and the model's outputs into the
// vectors or scores of these texts. It pads the rows of one run of the engine; which rows run together is
// decided by package ragged and the instance. It knows no protocol: see package protocol.
//
// Begin reading at [New] and [Reader.Text].
package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/tokenizer"
)

// IDsInput is the input of a model of texts with the token ids.
const IDsInput = "input_ids"

// The other inputs of such a model.
const (
	maskInput = "attention_mask"
	typeInput = "token_type_ids"
)

// A text is cut before it is read beyond maxTokenBytes for each token of the maximum length, or beyond mostBytes if that
// is less, but never before it has leastTokenBytes for each token: no vocabulary has such tokens, but a text may have
// megabytes of white space.
const (
	maxTokenBytes   = 1024
	mostBytes       = 1 << 20
	leastTokenBytes = 64
)

// maxPairTokens is the maximum number of tokens of the pairs of a request: each repeats the query.
const maxPairTokens = 8 << 20

// Row is a text, or a pair of texts, as token ids with the special ones.
type Row struct {
	IDs []int32
	// TypeIDs say which text of a pair each token belongs to. They are as many as IDs, or nil if all are 0.
	TypeIDs []int32
}

// Options are what a deployment says of texts.
type Options struct {
	// MaxLength is the maximum number of tokens, special ones included, 0 for the bundle's. It cannot raise that.
	MaxLength int
	// Refuse refuses longer texts. Otherwise they are cut.
	Refuse bool
}

// Reader reads texts for one model, and the model's outputs. It is safe for concurrent use.
type Reader struct {
	settings  bundle.Text
	tokens    *tokenizer.Tokenizer
	inputs    []tensor.Info
	maxLength int
	refuse    bool
	pad       int32
	// fixed is the model's only length, 0 if it takes any.
	fixed int
	// output is the position of the output with vectors or scores, and size what that has for each text or token, 0
	// if the model does not say.
	output, size int
	// layers are those of text.dense.
	layers []bundle.Layer
}

// Files are what a bundle's files say of texts: the tokenizer, and the layers of text.dense.
type Files struct {
	tokens *tokenizer.Tokenizer
	layers []bundle.Layer
}

// ReadFiles reads the files in a bundle's directory. The error names the field.
func ReadFiles(dir string, settings *bundle.Text) (*Files, error) {
	file, err := settings.ReadTokenizer(dir)
	if err != nil {
		return nil, err
	}
	f := &Files{}
	if f.tokens, err = tokenizer.New(file, tokenizer.Options{}); err != nil {
		return nil, fmt.Errorf("text.tokenizer: %s: %w", settings.Tokenizer, err)
	}
	f.layers, err = settings.ReadLayers(dir)
	return f, err
}

// Open is [New] with the files in a bundle's directory.
func Open(dir string, settings bundle.Text, inputs, outputs []tensor.Info, options Options) (*Reader, error) {
	files, err := ReadFiles(dir, &settings)
	if err != nil {
		return nil, err
	}
	return New(files, settings, inputs, outputs, options)
}

// New checks that settings and their files fit a model with these inputs and outputs, which are those of the engine. The
// error names the field.
func New(files *Files, settings bundle.Text, inputs, outputs []tensor.Info, options Options) (r *Reader, err error) {
	tokens := files.tokens
	r = &Reader{
		settings: settings, tokens: tokens, layers: files.layers, inputs: inputs,
		maxLength: settings.MaxLength, refuse: options.Refuse,
	}
	if options.MaxLength > 0 {
		r.maxLength = min(r.maxLength, options.MaxLength)
	}
	var ok bool
	if r.pad, ok = tokens.ID(settings.Pad); !ok {
		return nil, fmt.Errorf("text.pad is %q; the vocabulary of %s lacks it", settings.Pad, settings.Tokenizer)
	}
	if err := r.checkInputs(); err != nil {
		return nil, err
	}
	if err := r.checkOutput(outputs); err != nil {
		return nil, err
	}
	// The special tokens alone must fit.
	if r.Reranks() {
		_, _, err = r.Pairs("", []string{""})
	} else {
		_, err = r.Text("")
	}
	if err != nil {
		return nil, fmt.Errorf("text.max_length: %w", err)
	}
	return r, nil
}

// checkInputs checks the names, types and shapes of the model's inputs.
func (r *Reader) checkInputs() error {
	var names []string
	for _, in := range r.inputs {
		names = append(names, in.Name)
		shape := own(in)
		switch {
		case !slices.Contains([]string{IDsInput, maskInput, typeInput}, in.Name):
			return fmt.Errorf("text: the model has the input %s; one of texts takes %s, %s and %s only; export it without %s",
				in.Name, IDsInput, maskInput, typeInput, in.Name)
		case in.Type != tensor.Int64 && in.Type != tensor.Int32:
			return fmt.Errorf("text: input %s is %s; it must be INT64 or INT32", in.Name, in.Type)
		case len(shape) != 2 || in.Edge != nil && in.Edge.Axis > 0 || shape[0] > 1:
			return fmt.Errorf("text: input %s has the shape %v; it must be [batch, sequence]", in.Name, shape)
		case shape[1] > 0:
			if r.fixed != 0 && int64(r.fixed) != shape[1] {
				return fmt.Errorf("text: inputs have the lengths %d and %d; they must be equal", r.fixed, shape[1])
			}
			r.fixed = int(shape[1])
		}
	}
	for _, name := range []string{IDsInput, maskInput} {
		if !slices.Contains(names, name) {
			return fmt.Errorf("text: the model has no input %s; it has %s", name, strings.Join(names, ", "))
		}
	}
	if r.fixed > 0 {
		r.maxLength = min(r.maxLength, r.fixed)
	}
	return nil
}

// checkOutput finds the output with the vectors or scores.
func (r *Reader) checkOutput(outputs []tensor.Info) error {
	var names []string
	r.output = -1
	for i, out := range outputs {
		names = append(names, out.Name)
		if r.settings.Output == out.Name || r.settings.Output == "" && i == 0 {
			r.output = i
		}
	}
	if r.output < 0 {
		return fmt.Errorf("text.output is %q; the model has %s", r.settings.Output, strings.Join(names, ", "))
	}
	out := outputs[r.output]
	shape := own(out)
	if !out.Type.Float() {
		return fmt.Errorf("text.output %s is %s; vectors and scores are floating-point numbers", out.Name, out.Type)
	}
	switch dims := len(shape); {
	case r.settings.Task == bundle.TaskRerank:
		if dims != 1 && (dims != 2 || shape[1] > 1) {
			return fmt.Errorf("text.output %s has the shape %v; a reranker's is [batch, 1]", out.Name, shape)
		}
	case r.settings.Pooling == bundle.PoolNone && dims != 2:
		return fmt.Errorf("text.pooling is none, and output %s has the shape %v; it must be [batch, size]", out.Name, shape)
	case r.settings.Pooling != bundle.PoolNone && dims != 3:
		return fmt.Errorf("text.pooling is %s, and output %s has the shape %v; it must be [batch, sequence, size]",
			r.settings.Pooling, out.Name, shape)
	}
	r.size = int(max(0, shape[len(shape)-1]))
	if n := len(r.layers); n > 0 {
		if r.size > 0 && r.size != r.layers[0].In {
			return fmt.Errorf("text.dense: the first layer takes vectors of %d elements, and output %s has %d", r.layers[0].In,
				out.Name, r.size)
		}
		r.size = r.layers[n-1].Out
	}
	return nil
}

// own is a tensor's shape as the model has it.
func own(info tensor.Info) []int64 {
	if info.Edge != nil {
		return info.Edge.Shape
	}
	return info.Shape
}

// Reranks reports whether the model gives scores to pairs. Otherwise it gives vectors to texts.
func (r *Reader) Reranks() bool { return r.settings.Task == bundle.TaskRerank }

// Normalizes reports whether vectors have the length 1.
func (r *Reader) Normalizes() bool { return r.settings.Normalize }

// Size is the number of elements of a vector, 0 if the model does not say.
func (r *Reader) Size() int { return r.size }

// Elements is the number of elements of a row, all inputs together, without padding.
func (r *Reader) Elements(row Row) int64 { return int64(len(row.IDs) * len(r.inputs)) }

// Text returns the row of a text. Special tokens in the text are text like any other. Bytes that are not UTF-8
// are read as U+FFFD. The error says that the text is too long.
func (r *Reader) Text(text string) (Row, error) {
	text, cut := r.cut(text)
	e, err := r.tokens.Encode(text, r.maxLength)
	return r.row(e, cut, err)
}

// Texts is [Reader.Text] for many. Of several errors it returns that of the first text, and the text's position.
func (r *Reader) Texts(texts []string) (rows []Row, at int, err error) {
	return each(texts, r.Text)
}

// Pairs returns the rows of a query with each of many documents. It is for a model that reranks. It refuses pairs that
// have too many tokens together.
func (r *Reader) Pairs(query string, documents []string) (rows []Row, at int, err error) {
	return r.pairs(query, documents, maxPairTokens)
}

func (r *Reader) pairs(query string, documents []string, most int) (rows []Row, at int, err error) {
	query, cutQuery := r.cut(query)
	first, err := r.tokens.Query(query)
	if err != nil {
		return nil, 0, err
	}
	tokens := 0
	return each(documents, func(document string) (Row, error) {
		if tokens > most {
			return Row{}, fmt.Errorf("the pairs before have more than %d tokens, the maximum; send fewer documents", most)
		}
		document, cut := r.cut(document)
		e, err := first.EncodePair(document, r.maxLength)
		tokens += len(e.IDs)
		return r.row(e, cut || cutQuery, err)
	})
}

func each(texts []string, read func(text string) (Row, error)) (rows []Row, at int, err error) {
	rows = make([]Row, len(texts))
	for i, text := range texts {
		if rows[i], err = read(text); err != nil {
			return nil, i, err
		}
	}
	return rows, 0, nil
}

// row is a tokenizer's answer as a row. cut says that the text was cut before.
func (r *Reader) row(e tokenizer.Encoding, cut bool, err error) (Row, error) {
	if err != nil {
		return Row{}, err
	}
	if r.refuse && (cut || e.Truncated) {
		return Row{}, fmt.Errorf("it has more than %d tokens, the maximum here; send a shorter one", r.maxLength)
	}
	row := Row{IDs: e.IDs}
	if slices.ContainsFunc(e.TypeIDs, func(id int32) bool { return id != 0 }) {
		row.TypeIDs = e.TypeIDs
	}
	return row, nil
}

// cut leaves out the end of a text that has far more bytes than the tokens that are read.
func (r *Reader) cut(text string) (string, bool) {
	limit := max(min(maxTokenBytes*r.maxLength, mostBytes), leastTokenBytes*r.maxLength)
	if len(text) <= limit {
		return text, false
	}
	for limit > 0 && text[limit]&0xC0 == 0x80 { // In the middle of a character.
		limit--
	}
	return text[:limit], true
}

// Tokens returns the row of token ids as a client sends them: nothing is added. The error says which position is
// wrong.
func (r *Reader) Tokens(ids []int64) (Row, error) {
	for i, id := range ids {
		if id < 0 || id >= int64(r.tokens.Size()) {
			return Row{}, fmt.Errorf("token %d at position %d is out of range; the vocabulary has 0 to %d",
				id, i, r.tokens.Size()-1)
		}
	}
	if len(ids) > r.maxLength {
		if r.refuse {
			return Row{}, fmt.Errorf("it has %d tokens; the maximum here is %d; send fewer", len(ids), r.maxLength)
		}
		ids = ids[:r.maxLength]
	}
	row := Row{IDs: make([]int32, len(ids))}
	for i, id := range ids {
		row.IDs[i] = int32(id)
	}
	return row, nil
}
