package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// ContentHash is the SHA-256, in hex, of the model file at path and of its files
// of external weights: equal hashes mean equal models. It streams the files and
// decodes only a model with external data.
func ContentHash(path string) (string, error) {
	sum := sha256.New()
	marked := &marker{mark: []byte("\x0a\x08location")}
	if err := addFile(io.MultiWriter(sum, marked), path); err != nil {
		return "", err
	}
	if marked.found {
		if err := addExternal(sum, path); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func addExternal(sum hash.Hash, path string) error {
	m, err := ReadFile(path)
	if err != nil {
		return fmt.Errorf("hash model: %w", err)
	}
	for _, name := range m.ExternalFiles() {
		fmt.Fprintf(sum, "\n%q\n", name)
		if err := addFile(sum, filepath.Join(filepath.Dir(path), name)); err != nil {
			return err
		}
	}
	return nil
}

func addFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("hash model: %w", err)
	}
	defer f.Close()
	if _, err := io.Copy(w, f); err != nil {
		return fmt.Errorf("hash model: %w", err)
	}
	return nil
}

// marker looks for the encoded key of an external data entry. Weights may contain
// the same bytes by chance; the model is then decoded in vain, with the same hash.
type marker struct {
	mark, seen []byte
	found      bool
}

func (m *marker) Write(b []byte) (int, error) {
	if !m.found {
		m.seen = append(m.seen, b...)
		m.found = bytes.Contains(m.seen, m.mark)
		// The mark may lie across two writes.
		m.seen = append(m.seen[:0], m.seen[max(0, len(m.seen)-len(m.mark)):]...)
	}
	return len(b), nil
}
