package forkjoin

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/model/cut"
)

// ModelFile is the name of a part's model in its directory.
const ModelFile = "model.onnx"

// WritePart writes a part's model and its weights into an empty directory, and returns the
// model's file. It holds a megabyte of the weights at a time.
func WritePart(dir string, p *cut.Part, from cut.Source) (file string, err error) {
	m, weights, err := p.Model()
	if err != nil {
		return "", err
	}
	f, err := os.Create(filepath.Join(dir, cut.WeightsFile))
	if err != nil {
		return "", fmt.Errorf("write part: %w", err)
	}
	err = errors.Join(cut.WriteWeights(f, weights, from), f.Close())
	if err != nil {
		return "", fmt.Errorf("write part: %w", err)
	}
	file = filepath.Join(dir, ModelFile)
	if f, err = os.Create(file); err != nil {
		return "", fmt.Errorf("write part: %w", err)
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(m.Write(w), w.Flush(), f.Close()); err != nil {
		return "", fmt.Errorf("write part: %w", err)
	}
	return file, nil
}
