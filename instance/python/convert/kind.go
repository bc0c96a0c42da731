package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kind is a file format of models.
type Kind int

// The supported formats.
const (
	Keras Kind = iota + 1
	SavedModel
	Torch
	ONNX
)

// String implements fmt.Stringer.
func (k Kind) String() string {
	return map[Kind]string{Keras: "a Keras model", SavedModel: "a SavedModel", Torch: "a PyTorch model", ONNX: "an ONNX model"}[k]
}

// engine returns the engine, in package environment, whose requirements install the
// converter.
func (k Kind) engine() string {
	if k == Torch {
		return "convert-torch"
	}
	return "convert-tensorflow"
}

// converters names the packages to install and their size.
func (k Kind) converters() string {
	if k == Torch {
		return "PyTorch and its exporter (3 GB; 300 MB if PIP_EXTRA_INDEX_URL names PyTorch's own index of CPU wheels)"
	}
	return "TensorFlow and tf2onnx (half a GB)"
}

// script returns the file name of the converter's script.
func (k Kind) script() string {
	if k == Torch {
		return "fromtorch.py"
	}
	return "fromtensorflow.py"
}

// savedModelFile is the file that every SavedModel's directory contains.
const savedModelFile = "saved_model.pb"

// source returns the kind of the model to convert.
func source(path string) (Kind, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s does not exist", path)
	}
	if err != nil {
		return 0, err
	}
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, savedModelFile)); err != nil {
			return 0, fmt.Errorf("the directory %s has no %s, which every SavedModel has", path, savedModelFile)
		}
		return SavedModel, nil
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".keras", ".h5", ".hdf5":
		return Keras, nil
	case ".pt2", ".pt", ".pth":
		return Torch, nil
	case ".onnx":
		return 0, fmt.Errorf("%s is an ONNX model already", path)
	case ".pb":
		return 0, fmt.Errorf("%s is one file of a SavedModel; name the directory %s", path, filepath.Dir(path))
	}
	return 0, fmt.Errorf("%s is not a supported model; name a file .keras, .h5, .pt2, .pt or .pth, or the directory of a SavedModel", path)
}

// target returns the kind of the new model.
func target(path string) (Kind, error) {
	switch ext := strings.ToLower(filepath.Ext(filepath.Clean(path))); ext {
	case ".onnx":
		return ONNX, nil
	case ".keras", ".h5", ".hdf5", ".pt", ".pt2", ".pth", ".pb", ".tflite":
		return 0, fmt.Errorf("%s: the output must be ONNX (a file .onnx) or a SavedModel (a directory, without an extension)", path)
	}
	return SavedModel, nil
}
