package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The engines that run models.
const (
	// EngineONNX runs ONNX models in the instance's own process.
	EngineONNX = "onnx"
	// EngineTensorFlow runs SavedModels and Keras files with TensorFlow, in a Python
	// process beside the instance.
	EngineTensorFlow = "tensorflow"
	// EnginePython runs a handler in a Python process beside the instance.
	EnginePython = "python"
)

// savedModelFile is what tells a SavedModel's directory.
const savedModelFile = "saved_model.pb"

// InPython reports whether a Python process runs the model.
func (m Manifest) InPython() bool {
	return m.Engine == EngineTensorFlow || m.Engine == EnginePython
}

// modelField names a field that only models have, beside engine; the empty string
// if there is none.
func (m Manifest) modelField() string {
	switch {
	case m.Model != "":
		return "model"
	case m.Handler != "":
		return "handler"
	case m.Requirements != "":
		return "requirements"
	}
	return ""
}

func (m Manifest) validateModel() error {
	known := fmt.Sprintf("%s, %s or %s", EngineONNX, EngineTensorFlow, EnginePython)
	switch {
	case m.Engine == "":
		return fmt.Errorf("%w: engine is missing; write `engine:` and %s", ErrManifest, known)
	case m.Engine != EngineONNX && !m.InPython():
		return fmt.Errorf("%w: engine is %q; it is %s", ErrManifest, m.Engine, known)
	case m.Engine == EngineONNX && m.Handler != "":
		return fmt.Errorf("%w: handler is for the engines %s and %s; an ONNX model is run as it is", ErrManifest, EngineTensorFlow, EnginePython)
	case m.Engine == EngineONNX && m.Requirements != "":
		return fmt.Errorf("%w: requirements is for the engines %s and %s; an ONNX model needs no Python", ErrManifest, EngineTensorFlow, EnginePython)
	case m.Engine == EngineONNX && m.Model == "":
		return fmt.Errorf("%w: model is missing; write the name of the model's file in the bundle, as `model: model.onnx`", ErrManifest)
	case m.Engine == EngineTensorFlow && m.Model == "":
		return fmt.Errorf("%w: model is missing; write the name of the SavedModel's directory or the Keras file in the bundle, as `model: saved_model` or `model: model.keras`", ErrManifest)
	case m.Engine == EnginePython && m.Handler == "":
		return fmt.Errorf("%w: handler is missing; write the name of the Python file in the bundle that has load and handle, as `handler: handler.py`", ErrManifest)
	case m.Handler != "" && filepath.Ext(m.Handler) != ".py":
		return fmt.Errorf("%w: handler is %q; it must be a Python file, as handler.py", ErrManifest, m.Handler)
	}
	for _, field := range m.files() {
		if field.name != "" && !filepath.IsLocal(field.name) {
			return fmt.Errorf("%w: %s is %q; it must be a path inside the bundle", ErrManifest, field.key, field.name)
		}
	}
	return nil
}

// named is a file that the manifest names.
type named struct{ key, name string }

func (m Manifest) files() []named {
	return []named{{"model", m.Model}, {"handler", m.Handler}, {"requirements", m.Requirements}}
}

// checkModel looks for the files that a model's manifest names.
func (b *Bundle) checkModel() error {
	for _, field := range b.files() {
		if field.name == "" {
			continue
		}
		if b.InPython() && field.key == "model" {
			if err := b.checkPythonModel(); err != nil {
				return fmt.Errorf("%w: model: %w", ErrManifest, err)
			}
			continue
		}
		if _, err := b.File(field.name); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrManifest, field.key, err)
		}
	}
	return nil
}

// checkPythonModel accepts a directory, too, and of TensorFlow's only a SavedModel's.
func (b *Bundle) checkPythonModel() error {
	inside, err := os.OpenRoot(b.Dir)
	if err != nil {
		return fmt.Errorf("open bundle: %w", err)
	}
	defer inside.Close()
	info, err := inside.Stat(b.Model)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the bundle has no file or directory %q: %w", b.Model, err)
	case err != nil:
		return fmt.Errorf("%q of the bundle: %w", b.Model, err)
	case b.Engine != EngineTensorFlow || b.Handler != "":
		return nil
	case !info.IsDir():
		if ending := strings.ToLower(filepath.Ext(b.Model)); ending != ".keras" && ending != ".h5" {
			return fmt.Errorf("%q is neither a SavedModel's directory nor a Keras file, .keras or .h5; write a handler that loads it", b.Model)
		}
		return nil
	}
	if _, err := inside.Stat(filepath.Join(b.Model, savedModelFile)); err != nil {
		return fmt.Errorf("the directory %q has no %s, so it is no SavedModel; write one with model.export(%[1]q) or tf.saved_model.save, or write a handler that loads what it is", b.Model, savedModelFile)
	}
	return nil
}
