package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// PythonLabel is the label of an image that gives its version of Python, as
	// 3.11.
	PythonLabel = "dev.faas-infer.python"
	// Python is the path of that Python.
	Python = "/usr/bin/python3"
	// PythonPackages is the directory of the packages that a function in Python
	// requires.
	PythonPackages = "/usr/lib/faas-infer/python"
)

// pythonEnv tells an instance that its image has all packages of its Python.
var pythonEnv = []string{"FAAS_INFER_PYTHON_READY=" + Python, "PYTHONPATH=" + PythonPackages, "PYTHONDONTWRITEBYTECODE=1"}

// PythonOf returns the version of a base image's Python. The error for an image
// without Python wraps [ErrBase].
func PythonOf(base v1.Image) (version string, err error) {
	config, err := base.ConfigFile()
	if err != nil {
		return "", fmt.Errorf("read the base image: %w", err)
	}
	if version = config.Config.Labels[PythonLabel]; version == "" {
		return "", fmt.Errorf("%w in Python: it has none; make one with `faas-infer-kubernetes image base --python`", ErrBase)
	}
	return version, nil
}

// AppendPackages adds to a base image the packages in a directory of this machine.
// pip must have installed them for the same version of Python. Append the function's
// bundle afterwards: the layer that changes most is then pushed alone.
func AppendPackages(base v1.Image, dir string) (v1.Image, error) {
	if _, err := PythonOf(base); err != nil {
		return nil, err
	}
	files, err := Directory(dir, strings.TrimPrefix(PythonPackages, "/"))
	if err != nil {
		return nil, fmt.Errorf("Python's packages: %w", err)
	}
	layer, err := Layer(packages(files))
	if err != nil {
		return nil, fmt.Errorf("Python's packages: %w", err)
	}
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: Epoch}, CreatedBy: "faas-infer: Python's packages"},
	})
	if err != nil {
		return nil, fmt.Errorf("add Python's packages to the image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Config.Env = append(slices.Clone(config.Config.Env), pythonEnv...)
	return mutate.ConfigFile(image, config)
}

// packages leaves out pip, and sets the source's time in compiled files to the time
// that sources have in an image.
func packages(files []Entry) []Entry {
	root := strings.TrimPrefix(PythonPackages, "/") + "/"
	var kept []Entry
	for _, e := range files {
		top, _, _ := strings.Cut(strings.TrimPrefix(e.Name, root), "/")
		if top == "pip" || strings.HasPrefix(top, "pip-") {
			continue
		}
		if path.Ext(e.Name) == ".pyc" && e.Open != nil {
			open := e.Open
			e.Open = func() (io.ReadCloser, error) { return compiled(open) }
		}
		kept = append(kept, e)
	}
	return kept
}

// compiledHead is the size in bytes of a compiled file's header: a number for
// Python's version, flags, the source's time and its size, four bytes each (PEP 552).
const compiledHead = 16

// compiled reads a compiled file. If its header has the source's time, it becomes
// [Epoch].
func compiled(open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	from, err := open()
	if err != nil {
		return nil, err
	}
	head := make([]byte, compiledHead)
	n, err := io.ReadFull(from, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, from.Close())
	}
	if n == compiledHead && bytes.Equal(head[4:8], make([]byte, 4)) {
		clear(head[8:12])
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head[:n]), from), from}, nil
}

// hasPackages reports whether an image has a function's Python packages.
func hasPackages(image v1.Image) bool {
	config, err := image.ConfigFile()
	return err == nil && slices.Contains(config.Config.Env, pythonEnv[0])
}
