package convert

import (
	"archive/zip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/model"
)

// Kind is a file format of models.
type Kind int

// The supported formats.
const (
	Keras Kind = iota + 1
	SavedModel
	Torch
	Pickle
	XGBoost
	LightGBM
	CatBoost
	ONNX
)

// kinds describe the formats: for people, for the scripts, and by the converter.
var kinds = map[Kind]struct {
	text, name string
	converter  *converter
}{
	Keras:      {"a Keras model", "keras", &fromTensorFlow},
	SavedModel: {"a SavedModel", "savedmodel", &fromTensorFlow},
	Torch:      {"a PyTorch model", "torch", &fromTorch},
	Pickle:     {"a pickled model", "pickle", &fromTabular},
	XGBoost:    {"an XGBoost model", "xgboost", &fromTabular},
	LightGBM:   {"a LightGBM model", "lightgbm", &fromTabular},
	CatBoost:   {"a CatBoost model", "catboost", &fromTabular},
	ONNX:       {"an ONNX model", "onnx", nil},
}

// formats maps what a file's content says to the kind of model.
var formats = map[model.Format]Kind{
	model.FormatKeras: Keras, model.FormatTorch: Torch, model.FormatPickle: Pickle,
	model.FormatXGBoost: XGBoost, model.FormatLightGBM: LightGBM, model.FormatCatBoost: CatBoost,
}

// converter is a script and what it needs.
type converter struct {
	// engine is the engine, in package environment, whose requirements install the converter.
	engine string
	// packages names these for people, with their size. script is the script's file name.
	packages, script string
	// batches are the default batch sizes of the comparison.
	batches []int
}

var (
	fromTensorFlow = converter{"convert-tensorflow", "TensorFlow and tf2onnx (half a GB)", "fromtensorflow.py", []int{1, 3, 8}}
	fromTorch      = converter{
		"convert-torch", "PyTorch and its exporter (3 GB; 300 MB if PIP_EXTRA_INDEX_URL names PyTorch's own index of CPU wheels)", "fromtorch.py", []int{1, 3, 8},
	}
	// Trees are compared on many rows, because a row takes one way through each.
	fromTabular = converter{"convert-tabular", "scikit-learn, XGBoost, LightGBM, CatBoost and their converters (0.3 GB)", "fromtabular.py", []int{1, 8, 256}}
)

// String implements fmt.Stringer.
func (k Kind) String() string { return kinds[k].text }

// converter returns what converts models of the kind.
func (k Kind) converter() *converter { return kinds[k].converter }

// savedModelFile is the file that every SavedModel's directory contains.
const savedModelFile = "saved_model.pb"

// source returns the kind of the model to convert, by its content.
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
	foreign, known, err := model.RecogniseFile(path)
	switch kind := formats[foreign.Format]; {
	case err != nil:
		return 0, err
	case kind != 0:
		return kind, checkArchive(path, info.Size())
	case foreign.Format == model.FormatSavedModelPB:
		return 0, fmt.Errorf("%s is one file of a SavedModel; name the directory %s", path, filepath.Dir(path))
	case known:
		return 0, fmt.Errorf("%s cannot be converted: %w", path, foreign)
	}
	if _, err := model.ReadOutline(path); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%s is an ONNX model already", path)
}

// An archive of size bytes may hold inflated bytes and inflatedBy times its size. Weights hardly
// shrink; the texts beside them are small.
const (
	inflated   = 64 << 20
	inflatedBy = 20
)

// checkArchive refuses a zip archive, such as Keras and PyTorch write, that would fill the memory of
// whoever reads it. It reads only the archive's directory. Another file is no archive.
func checkArchive(path string, size int64) error {
	r, err := zip.OpenReader(path)
	if err != nil {
		return nil // It is none, or the converter says what is wrong with it.
	}
	defer r.Close()
	left := uint64(inflated + inflatedBy*size)
	for _, f := range r.File {
		if f.UncompressedSize64 > left {
			return fmt.Errorf("%s has %d bytes and would be more than %d MiB when it is unpacked; write the model again without compression", path, size, (inflated+inflatedBy*size)>>20)
		}
		left -= f.UncompressedSize64
	}
	return nil
}

// target returns the kind of the new model.
func target(path string) (Kind, error) {
	switch ext := strings.ToLower(filepath.Ext(filepath.Clean(path))); ext {
	case ".onnx":
		return ONNX, nil
	case ".keras", ".h5", ".hdf5", ".pt", ".pt2", ".pth", ".pb", ".tflite", ".json", ".ubj", ".cbm", ".pkl", ".joblib", ".txt":
		return 0, fmt.Errorf("%s: the output must be ONNX (a file .onnx) or a SavedModel (a directory, without an extension)", path)
	}
	return SavedModel, nil
}
