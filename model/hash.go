package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
)

// ContentHash is the SHA-256, in hex, of the model file at path and of its files
// of external weights: equal hashes mean equal models. It streams the files and
// decodes none ([ExternalFiles]).
func ContentHash(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hash model: %w", err)
	}
	defer f.Close()
	h := NewHasher()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hash model: %w", err)
	}
	if h.Whole() {
		return h.Sum(), nil
	}
	err = externalFiles(path, func(name string, f *os.File) error {
		fmt.Fprintf(h.sha, "\n%q\n", name)
		_, err := io.Copy(h.sha, f)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash model: %w", err)
	}
	return h.Sum(), nil
}

// Hasher hashes a model's file as it is written to it, so that nobody reads a downloaded file again.
type Hasher struct {
	sha    hash.Hash
	marked marker
}

// NewHasher returns a Hasher of no bytes.
func NewHasher() *Hasher {
	return &Hasher{sha: sha256.New(), marked: marker{mark: []byte("\x0a\x08location")}}
}

// Write implements [io.Writer]. It never fails.
func (h *Hasher) Write(b []byte) (int, error) {
	_, _ = h.sha.Write(b)
	return h.marked.Write(b)
}

// Sum is the SHA-256 of the bytes, in hex.
func (h *Hasher) Sum() string { return hex.EncodeToString(h.sha.Sum(nil)) }

// Whole reports whether [Hasher.Sum] is the file's [ContentHash]. It is not if weights may be in other files.
func (h *Hasher) Whole() bool { return !h.marked.found }

// marker looks for the encoded key of an external data entry. Weights may contain
// the same bytes by chance; the model is then walked through in vain, with the same hash.
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
