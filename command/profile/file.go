package profile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/textmodel"
)

// ModelFile returns the model file of an argument: the argument itself, a bundle's model,
// or the only ONNX file in a folder. The error says what to give instead.
func ModelFile(argument string) (string, error) {
	info, err := os.Stat(argument)
	if err != nil || !info.IsDir() {
		return argument, nil
	}
	if _, err := os.Stat(filepath.Join(argument, "saved_model.pb")); err == nil {
		return "", fmt.Errorf("%s is a TensorFlow SavedModel; give the directory above it, with a %s that says engine: tensorflow and model: %s", argument, bundle.ManifestFile, filepath.Base(argument))
	}
	if _, err := os.Stat(filepath.Join(argument, bundle.ManifestFile)); err == nil {
		b, err := bundle.OpenDir(argument)
		if err == nil {
			err = b.CheckModel()
		}
		if err != nil {
			return "", err
		}
		return b.ModelPath(), nil
	}
	folder, err := textmodel.Recognise(argument, argument)
	if err != nil {
		return "", fmt.Errorf("%s: %w", argument, err)
	}
	if folder != nil {
		return filepath.Join(argument, folder.Manifest.Model), nil
	}
	found, err := filepath.Glob(filepath.Join(argument, "*.onnx"))
	if err == nil && len(found) == 0 {
		if err := foreignIn(argument); err != nil {
			return "", err
		}
	}
	if err != nil || len(found) != 1 {
		return "", errors.Join(err, fmt.Errorf("%s has %d ONNX files and no %s: give the file", argument, len(found), bundle.ManifestFile))
	}
	return found[0], nil
}

// Texts returns how the model of an argument takes texts, nil if it takes none or is a file. It checks whether its
// tokenizer fits. The argument is one of which [ModelFile] has returned the file.
func Texts(argument string) (*bundle.Text, error) {
	if info, err := os.Stat(argument); err != nil || !info.IsDir() {
		return nil, nil
	}
	if b, err := bundle.OpenDir(argument); err == nil {
		if b.Text == nil {
			return nil, nil
		}
		return b.Text, textmodel.Check(argument, b.Text, b.ModelPath(), 0)
	}
	folder, err := textmodel.Recognise(argument, argument)
	if err != nil || folder == nil {
		return nil, err
	}
	return folder.Manifest.Text, textmodel.CheckFolder(argument, folder)
}

// foreignIn returns an error that says what the first model of another format in a folder is.
// It is nil if there is none.
func foreignIn(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if !e.Type().IsRegular() {
			continue
		}
		if foreign, ok, err := model.RecogniseFile(file); err == nil && ok && foreign.IsModel() {
			return fmt.Errorf("%s is not an ONNX model: %w", file, foreign)
		}
	}
	return nil
}
