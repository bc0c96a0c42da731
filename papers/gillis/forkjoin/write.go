package forkjoin

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/model/cut"
)

// ModelFile is the name of a part's model in its directory.
const ModelFile = "model.onnx"

// Writer writes parts of one model. Parts with the same weights, such as those of a grid,
// share one file of weights by hard links, so it is on disk and in the page cache once.
type Writer struct {
	from cut.Source
	// written are the files of weights by what they hold.
	written map[string]string
}

// NewWriter makes a writer that reads the whole model's weights from a source.
func NewWriter(from cut.Source) *Writer {
	return &Writer{from: from, written: make(map[string]string)}
}

// Write writes a part's model and weights into an empty directory, and returns the model's
// file. It holds a megabyte of the weights at a time.
func (w *Writer) Write(dir string, p *cut.Part) (file string, err error) {
	m, weights, err := p.Model()
	if err != nil {
		return "", err
	}
	if err := w.weights(filepath.Join(dir, cut.WeightsFile), weights); err != nil {
		return "", fmt.Errorf("write part: %w", err)
	}
	file = filepath.Join(dir, ModelFile)
	f, err := os.Create(file)
	if err != nil {
		return "", fmt.Errorf("write part: %w", err)
	}
	buffer := bufio.NewWriter(f)
	if err := errors.Join(m.Write(buffer), buffer.Flush(), f.Close()); err != nil {
		return "", fmt.Errorf("write part: %w", err)
	}
	return file, nil
}

// weights writes a file of weights, or links it to one that holds the same.
func (w *Writer) weights(file string, weights []cut.Weight) error {
	var key strings.Builder
	for _, x := range weights {
		fmt.Fprintf(&key, "%q %v %d\n", x.From.GetName(), x.Region, x.Offset)
	}
	if same, ok := w.written[key.String()]; ok && os.Link(same, file) == nil {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(cut.WriteWeights(f, weights, w.from), f.Close()); err != nil {
		return err
	}
	w.written[key.String()] = file
	return nil
}
