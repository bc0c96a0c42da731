package infaas

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/filelock"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// Unfinished begins the name of a directory that a run has not finished.
const Unfinished = ".new-"

// Contents describes what the variants of a bundle's models are made of: the hash of the labelled
// data, "" for none, and a line for each model, with its content and what is stated of it.
func Contents(b *bundle.Bundle, hash, hashData func(path string) (string, error)) (data, models string, err error) {
	if b.Validation != nil {
		if data, err = hashData(filepath.Join(b.Dir, b.Validation.Data)); err != nil {
			return "", "", fmt.Errorf("validation.data: %w", err)
		}
	}
	for _, m := range b.Registered() {
		content, err := hash(filepath.Join(b.Dir, m.Model))
		if err != nil {
			return "", "", err
		}
		stated := 0.0
		if m.Accuracy != nil {
			stated = *m.Accuracy
		}
		models += fmt.Sprintf("%q %q %s %q %g\n", m.Name, m.Model, content, m.Image, stated)
	}
	return data, models, nil
}

// ErrBusy refuses a second run for the same directory.
var ErrBusy = errors.New("another process makes variants there; wait until it ends")

// LockDir locks a directory for this process. Closing the file unlocks it.
func LockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f, filelock.Exclusive); err != nil {
		if errors.Is(err, filelock.ErrLocked) {
			err = ErrBusy
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), f.Close())
	}
	return f, nil
}
