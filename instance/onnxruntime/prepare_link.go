package onnxruntime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrSmall says that a model is prepared soon enough.
var ErrSmall = errors.New("the model is small")

// linked is the end of the name of a directory that Link makes.
const linked = "-plain"

// Link makes a large model ready in a moment, for instances to begin with while [Prepare]
// takes its time: as it stands, by a link to its file. Each instance then optimises it
// itself, and shares no weights. content is [model.ContentHash] of it. A model that is
// prepared already is not linked, and of a small one the error wraps [ErrSmall].
func Link(modelPath, cacheDir, content string) (Prepared, error) {
	key := keyOfContent(content)
	if p, err := ReadPrepared(filepath.Join(cacheDir, key)); err == nil {
		return p, nil
	}
	dir := filepath.Join(cacheDir, key+linked)
	if p, err := ReadPrepared(dir); err == nil {
		return p, nil
	}
	p, err := link(modelPath, cacheDir, dir, content)
	if err != nil {
		return Prepared{}, fmt.Errorf("linking %s: %w", modelPath, err)
	}
	return p, nil
}

func link(modelPath, cacheDir, dir, content string) (Prepared, error) {
	switch info, err := os.Stat(modelPath); {
	case err != nil:
		return Prepared{}, err
	case info.Size() < manyWeights: // Also of a model whose weights are in other files.
		return Prepared{}, ErrSmall
	}
	form, err := formOf(Options{Model: modelPath})
	if err != nil {
		return Prepared{}, err
	}
	p := Prepared{Source: filepath.Base(modelPath), Content: content, Engine: Version(), CPU: hostCPU(), Format: FormatPlain, signature: form.signature}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return Prepared{}, err
	}
	work, err := os.MkdirTemp(cacheDir, ".link-")
	if err != nil {
		return Prepared{}, err
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return Prepared{}, err
	}
	if err := os.Link(modelPath, filepath.Join(work, formats[FormatPlain].file)); err != nil {
		return Prepared{}, err
	}
	manifest, err := json.Marshal(p)
	if err != nil {
		return Prepared{}, err
	}
	if err := os.WriteFile(filepath.Join(work, manifestFile), manifest, 0o644); err != nil {
		return Prepared{}, err
	}
	return publish(work, dir)
}
