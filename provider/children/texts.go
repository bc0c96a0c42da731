package children

import (
	"context"
	"fmt"
	"strconv"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// CheckTexts returns an error unless a bundle's model in a file fits its text and its tokenizer, with at most so many
// tokens; 0 for the bundle's own number. texts identifies the text and the tokenizer. It reads both in a child process,
// and again only after one has changed.
func (m *Models) CheckTexts(ctx context.Context, b *bundle.Bundle, file, texts string, tokens int) error {
	hash, err := m.Hash(file)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%s %s %d", hash, texts, tokens)
	if known, _ := m.texts.Load(file); known == key {
		return nil
	}
	if _, err := m.Run(ctx, Foreground, b.Dir, "model", "texts", b.Dir, file, "--tokens", strconv.Itoa(tokens)); err != nil {
		return err
	}
	m.texts.Store(file, key)
	return nil
}
