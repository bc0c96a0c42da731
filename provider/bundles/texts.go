package bundles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
)

// TextChecker checks models that take texts. [children.Models] implements it.
type TextChecker interface {
	// Hash returns the hash of a file.
	Hash(file string) (string, error)
	// CheckTexts returns an error unless a bundle's model in a file fits its text and its tokenizer, which texts identifies,
	// with at most so many tokens.
	CheckTexts(ctx context.Context, b *bundle.Bundle, file, texts string, tokens int) error
}

// SetTexts notes how a function's models take texts. It refuses models that do not fit their tokenizer, and a maximum
// length that they cannot have. A function that was accepted before is not checked again.
func SetTexts(ctx context.Context, by TextChecker, b *bundle.Bundle, f *provider.Function, models []control.Model) error {
	in := &f.Inference
	states := in.MaxLength > 0 || in.RefuseLong
	switch {
	case b.Text == nil && states:
		return in.WrongMaxLength(fmt.Sprintf("the model takes no texts: its %s has no field text; remove it", bundle.ManifestFile))
	case b.Text == nil:
		return nil
	case in.MaxLength > b.Text.MaxLength:
		return in.WrongMaxLength(fmt.Sprintf("the model takes texts of at most %d tokens (text.max_length in %s)",
			b.Text.MaxLength, bundle.ManifestFile))
	}
	f.MaxTokens = b.Text.MaxLength
	if in.MaxLength > 0 {
		f.MaxTokens = in.MaxLength
	}
	texts, err := textsOf(by, b)
	if err != nil {
		return fmt.Errorf("text: %w", err)
	}
	for i := range models {
		m := &models[i]
		m.Text, m.Texts = texts, b.Text.Describe()
		if m.Plan != nil || f.Restored {
			continue
		}
		if err := by.CheckTexts(ctx, b, m.File, texts, in.MaxLength); err != nil {
			return err
		}
	}
	return nil
}

// textsOf identifies how the models of a bundle take texts: by the field text of its manifest, and by the files that it
// names.
func textsOf(by TextChecker, b *bundle.Bundle) (string, error) {
	names := []string{b.Text.Tokenizer}
	for _, d := range b.Text.Dense {
		names = append(names, d.File)
	}
	all := fmt.Appendf(nil, "%+v", *b.Text)
	for _, name := range names {
		file, err := b.File(name)
		if err != nil {
			return "", err
		}
		hash, err := by.Hash(file)
		if err != nil {
			return "", err
		}
		all = fmt.Appendf(all, " %s", hash)
	}
	sum := sha256.Sum256(all)
	return hex.EncodeToString(sum[:8]), nil
}
