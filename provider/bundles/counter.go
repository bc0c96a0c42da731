package bundles

import (
	"context"
	"crypto/sha256"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/instance/text"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/tokenizer"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

const (
	// maxTokenizers bounds the files of the tokenizers that are in memory together, in bytes. Texts of other functions are not
	// counted.
	maxTokenizers = 256 << 20
	// tokenizerPause is the time after which a tokenizer is read again that could not be read.
	tokenizerPause = time.Minute
)

// Tokenizers are those with which texts are counted before they wait for an instance. Functions with the same file share
// one, which goes with the last of them. It is safe for concurrent use.
type Tokenizers struct {
	log zerolog.Logger

	mu sync.Mutex
	// all are the tokenizers by the hash of their files, held is the size of these files.
	all  map[[sha256.Size]byte]weak.Pointer[tokenizer.Tokenizer]
	held int64
}

// NewTokenizers returns an empty set.
func NewTokenizers(log zerolog.Logger) *Tokenizers {
	return &Tokenizers{log: log, all: map[[sha256.Size]byte]weak.Pointer[tokenizer.Tokenizer]{}}
}

// textCounter counts the tokens of a function's texts. It reads the tokenizer in the background when it is first asked.
type textCounter struct {
	tokenizers *Tokenizers
	function   *provider.Function
	open       func(context.Context) (*bundle.Bundle, error)

	by atomic.Pointer[text.Counter]
	// next is when the tokenizer may be read, in nanoseconds since 1970; it is far away while it is being read, and once it
	// has been.
	next atomic.Int64
}

// Counter returns what counts the tokens of a function's texts. open opens the function's bundle. Models that take no
// texts have no requests that are counted.
func (t *Tokenizers) Counter(f *provider.Function, open func(context.Context) (*bundle.Bundle, error)) dispatch.Counter {
	return &textCounter{tokenizers: t, function: f, open: open}
}

// never is a time that does not come.
const never = 1<<63 - 1

// Count implements [dispatch.Counter].
func (c *textCounter) Count(r *frame.Request) (rows, tokens int, exact bool) {
	by := c.by.Load()
	if by == nil {
		if next := c.next.Load(); next != never && time.Now().UnixNano() >= next && c.next.CompareAndSwap(next, never) {
			go c.read()
		}
		return 0, 0, false
	}
	size, ok := protocol.SizeOf(by, r.Path, r.Body)
	if !ok {
		return 0, 0, false
	}
	return size.Rows, size.Tokens, size.Exact
}

// read reads the tokenizer.
func (c *textCounter) read() {
	by, err := c.tokenizers.read(c.function, c.open)
	switch {
	case err != nil:
		c.tokenizers.log.Warn().Err(err).Str("function", c.function.Name).
			Msg("the tokens of requests cannot be counted before they wait; their times are estimated by the bytes of their texts")
		c.next.Store(time.Now().Add(tokenizerPause).UnixNano())
	case by != nil:
		c.by.Store(by)
	}
}

// readFor bounds how long a bundle may take to come.
const readFor = 10 * time.Minute

// read returns the counter of a function's texts, nil if there is none.
func (t *Tokenizers) read(f *provider.Function, open func(context.Context) (*bundle.Bundle, error)) (*text.Counter, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readFor)
	defer cancel()
	b, err := open(ctx)
	if err != nil || b.Text == nil {
		return nil, err
	}
	file, err := b.Text.ReadTokenizer(b.Dir)
	if err != nil {
		return nil, err
	}
	tokens, err := t.get(file)
	if tokens == nil || err != nil {
		return nil, err
	}
	length := b.Text.MaxLength
	if stated := f.Inference.MaxLength; stated > 0 {
		length = min(length, stated)
	}
	shapes, err := tensor.ParseShapes(f.Inference.MaxShapes)
	if shape := shapes[text.IDsInput]; err == nil && len(shape) > 1 && shape[1] > 0 {
		length = int(min(int64(length), shape[1]))
	}
	return text.NewCounter(tokens, *b.Text, length), nil
}

// get returns the tokenizer of a file, nil if too many are in memory.
func (t *Tokenizers) get(file []byte) (*tokenizer.Tokenizer, error) {
	key, size := sha256.Sum256(file), int64(len(file))
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.all[key].Value(); known != nil {
		return known, nil
	}
	if t.held+size > maxTokenizers {
		return nil, nil
	}
	tokens, err := tokenizer.New(file, tokenizer.Options{})
	if err != nil {
		return nil, err
	}
	held := weak.Make(tokens)
	t.all[key], t.held = held, t.held+size
	runtime.AddCleanup(tokens, func(key [sha256.Size]byte) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.held -= size; t.all[key] == held {
			delete(t.all, key)
		}
	}, key)
	return tokens, nil
}
