package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kind is a form in which models are kept.
type Kind int

// The forms that are known.
const (
	Keras Kind = iota + 1
	SavedModel
	Torch
	ONNX
)

// String names it.
func (k Kind) String() string {
	return map[Kind]string{Keras: "a Keras model", SavedModel: "a SavedModel", Torch: "a PyTorch model", ONNX: "an ONNX model"}[k]
}

// engine names the requirements of what converts it.
func (k Kind) engine() string {
	if k == Torch {
		return "convert-torch"
	}
	return "convert-tensorflow"
}

// converters says what is installed for it, and how much.
func (k Kind) converters() string {
	if k == Torch {
		return "PyTorch and its exporter (3 GB; 300 MB from PyTorch's own index of CPU wheels, if pip is told of it by PIP_EXTRA_INDEX_URL)"
	}
	return "TensorFlow and tf2onnx (half a GB)"
}

// script is the converter's.
func (k Kind) script() string {
	if k == Torch {
		return "fromtorch.py"
	}
	return "fromtensorflow.py"
}

// savedModelFile is what a SavedModel's directory has.
const savedModelFile = "saved_model.pb"

// source tells what is to be converted.
func source(path string) (Kind, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("there is no %s", path)
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
		return 0, fmt.Errorf("name the directory %s, which is the SavedModel", filepath.Dir(path))
	}
	return 0, fmt.Errorf("%s is none of .keras, .h5, .pt2, .pt, .pth and the directory of a SavedModel", path)
}

// target tells what it is to become.
func target(path string) (Kind, error) {
	switch ext := strings.ToLower(filepath.Ext(filepath.Clean(path))); ext {
	case ".onnx":
		return ONNX, nil
	case ".keras", ".h5", ".hdf5", ".pt", ".pt2", ".pth", ".pb", ".tflite":
		return 0, fmt.Errorf("%s: only ONNX (a file .onnx) and SavedModels (a directory, without an ending) can be made", path)
	}
	return SavedModel, nil
}
