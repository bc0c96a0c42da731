package plot

import (
	"errors"
	"os"
)

// WriteFile writes a figure to a file. It replaces an existing file.
func WriteFile(name string, f Figure) (err error) {
	w, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return Write(w, f)
}
