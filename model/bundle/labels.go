package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// LabelsFile is the name of the file with the names of a model's classes, one on each line, in
	// the bundle's directory. It is optional.
	LabelsFile = "labels.txt"
	// maxLabels is the maximum size of that file in bytes.
	maxLabels = 16 << 20
)

// ReadLabels reads the names of classes in a directory's [LabelsFile], by the class's index. It returns nil
// if there is no such file. Spaces around a name do not count, and an empty line is a class without a name.
func ReadLabels(dir string) ([]string, error) {
	path := filepath.Join(dir, LabelsFile)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the names of the classes: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxLabels:
		return nil, fmt.Errorf("%s is not a file of at most %d MiB; give one class's name on each line", path, maxLabels>>20)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the names of the classes: %w", err)
	}
	var labels []string
	for line := range strings.Lines(string(text)) {
		labels = append(labels, strings.ToValidUTF8(strings.TrimSpace(line), "\uFFFD"))
	}
	return labels, nil
}
