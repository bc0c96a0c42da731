package children

import (
	"context"
	"fmt"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// Alike returns an error unless all models of a bundle answer the same requests. It reads them
// in a child process, and again only after one has changed.
func (m *Models) Alike(ctx context.Context, b *bundle.Bundle) error {
	if len(b.Models) < 2 {
		return nil
	}
	var key strings.Builder
	for _, one := range b.Registered() {
		file, err := b.File(one.Model)
		if err != nil {
			return err
		}
		hash, err := m.Hash(file)
		if err != nil {
			return fmt.Errorf("model %s: %w", one.Name, err)
		}
		fmt.Fprintf(&key, "%s %s %q\n", one.Name, hash, one.Image)
	}
	if known, _ := m.alike.Load(b.Dir); known == key.String() {
		return nil
	}
	if _, err := m.Run(ctx, Foreground, b.Dir, "model", "alike", b.Dir); err != nil {
		return err
	}
	m.alike.Store(b.Dir, key.String())
	return nil
}
