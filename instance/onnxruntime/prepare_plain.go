package onnxruntime

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/model"
)

// writePlain puts the original model into dir, with the files of its weights beside it under
// the names that the model gives them.
func writePlain(original form, dir string) error {
	to := filepath.Join(dir, formats[FormatPlain].file)
	if original.data != nil {
		return os.WriteFile(to, original.data, 0o644)
	}
	if err := keepFile(original.path, to); err != nil {
		return err
	}
	m, err := model.ReadOutline(original.path)
	if err != nil {
		return err
	}
	for _, name := range m.ExternalFiles() {
		if name == filepath.Base(original.path) {
			continue // An outline has its large weights there.
		}
		if _, taken := formats[Format(strings.Split(name, "/")[0])]; taken || name == manifestFile || name == graphFile {
			return fmt.Errorf("the weights are in the file %s, a name that a prepared model uses itself; rename it", name)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := keepFile(filepath.Join(filepath.Dir(original.path), name), to); err != nil {
			return err
		}
	}
	return nil
}

// keepFile copies a file, or makes a hard link to a large one: its copy would take seconds.
func keepFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if info.Size() >= manyWeights && os.Link(from, to) == nil {
		return nil // Otherwise it is on another file system.
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(target, source); err != nil {
		target.Close()
		return err
	}
	return target.Close()
}
