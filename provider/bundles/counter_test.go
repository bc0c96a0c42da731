package bundles

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/textmodel/textmodeltest"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// eventually counts a request until the tokenizer has been read.
func eventually(t *testing.T, c dispatch.Counter, body string) (rows, tokens int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); rows == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the tokenizer is not read")
		}
		rows, tokens, _ = c.Count(&frame.Request{Path: "/v1/embeddings", Body: []byte(body)})
	}
	return rows, tokens
}

// The tokens of a function's texts are counted once its tokenizer has been read, up to its own maximum.
func TestTokensAreCounted(t *testing.T) {
	r, f := registrarOf(t, withTexts(t, textmodeltest.Graph{}))
	ask(f, "")
	for length, want := range map[int]int{0: 8 + 4, 5: 5 + 4} {
		f.Inference.MaxLength = length
		_, models, err := r.Models(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		c := models[0].Counter
		if rows, tokens := eventually(t, c, `{"input":["a a a a a a a a a a","b a"]}`); rows != 2 || tokens != want {
			t.Errorf("at most %d tokens: %d rows, %d tokens, want %d", length, rows, tokens, want)
		}
		if rows, _, _ := c.Count(&frame.Request{Path: "/", Body: []byte(`{"inputs":[]}`)}); rows != 0 {
			t.Errorf("a request without texts has %d", rows)
		}
	}
	r, f = registrarOf(t, withModels(t, "name: app\nengine: onnx\nmodel: a.onnx\n", "mnist"))
	ask(f, "")
	if _, models, err := r.Models(t.Context(), f); err != nil || models[0].Counter != nil {
		t.Errorf("a model without texts: %+v, %v", models, err)
	}
}

// Functions with the same tokenizer share it, and it goes with the last of them.
func TestTokenizersAreShared(t *testing.T) {
	all := NewTokenizers(zerolog.Nop())
	file := []byte(textmodeltest.Tokenizer)
	a, err := all.get(file)
	b, failed := all.get(file)
	if err != nil || failed != nil || a == nil || a != b || all.held != int64(len(file)) {
		t.Fatalf("%p and %p, %d bytes, %v, %v", a, b, all.held, err, failed)
	}
	runtime.KeepAlive(b)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		runtime.GC()
		all.mu.Lock()
		held, n := all.held, len(all.all)
		all.mu.Unlock()
		if held == 0 && n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held", held)
		}
	}
	all.held = maxTokenizers
	if c, err := all.get(file); c != nil || err != nil {
		t.Errorf("beyond the maximum: %v, %v", c, err)
	}
}

// A bundle that cannot be opened is tried again later, and says why once.
func TestTokenizersThatCannotBeRead(t *testing.T) {
	var log strings.Builder
	tried := make(chan struct{}, 10)
	c := NewTokenizers(zerolog.New(&log)).Counter(&provider.Function{}, func(context.Context) (*bundle.Bundle, error) {
		tried <- struct{}{}
		return nil, errors.New("it is gone")
	}).(*textCounter)
	for c.Count(&frame.Request{}); c.next.Load() == never; time.Sleep(time.Millisecond) {
	}
	c.Count(&frame.Request{})
	if n := len(tried); n != 1 || !strings.Contains(log.String(), "it is gone") {
		t.Errorf("tried %d times: %s", n, log.String())
	}
	c.next.Store(0)
	c.Count(&frame.Request{})
	<-tried
	<-tried
	for c.next.Load() == never {
		time.Sleep(time.Millisecond)
	}
}
