package model

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	sum := sha256.New()
	marked := &marker{mark: []byte("\x0a\x08location")}
	if _, err := io.Copy(io.MultiWriter(sum, marked), f); err != nil {
		return "", fmt.Errorf("hash model: %w", err)
	}
	if !marked.found {
		return hex.EncodeToString(sum.Sum(nil)), nil
	}
	err = externalFiles(path, func(name string, f *os.File) error {
		fmt.Fprintf(sum, "\n%q\n", name)
		_, err := io.Copy(sum, f)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash model: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

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
