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

// savedModelFile identifies the directory of a SavedModel.
const savedModelFile = "saved_model.pb"

// InPython reports whether a Python process runs the model.
func (m Manifest) InPython() bool {
	return m.Engine == EngineTensorFlow || m.Engine == EnginePython
}

// Processed reports whether a handler's program runs beside the instance, before and
// after an ONNX model.
func (m Manifest) Processed() bool { return m.Engine == EngineONNX && m.Handler != "" }

// goFile is the extension of a handler written in Go.
const goFile = ".go"

// HandlerProgram is the program of a [Manifest.Processed] model's handler, a file of
// the bundle. For a handler in Go it is the compiled program beside the Go file.
func (m Manifest) HandlerProgram() string { return strings.TrimSuffix(m.Handler, goFile) }

// modelField names the first set field, other than engine, that only models have;
// "" if there is none.
func (m Manifest) modelField() string {
	switch {
	case m.Model != "":
		return "model"
	case m.Models != nil:
		return "models"
	case m.Validation != nil:
		return "validation"
	case m.Handler != "":
		return "handler"
	case m.Requirements != "":
		return "requirements"
	case m.Text != nil:
		return "text"
	}
	return m.upstreamField()
}

func (m Manifest) validateModel() error {
	known := fmt.Sprintf("%s, %s, %s, %s, %s or %s", EngineONNX, EngineTensorFlow, EnginePython, EngineTriton, EngineTensorFlowServing, EngineMLServer)
	switch {
	case m.Engine == "":
		return fmt.Errorf("%w: engine is missing; write `engine:` and %s", ErrManifest, known)
	case m.Engine != EngineONNX && !m.Whole():
		return fmt.Errorf("%w: engine is %q; it must be %s", ErrManifest, m.Engine, known)
	case m.Engine != EngineONNX && m.Models != nil:
		return fmt.Errorf("%w: models is for the engine %s, not for %s; name one model in the field model", ErrManifest, EngineONNX, m.Engine)
	case !m.Upstream() && m.upstreamField() != "":
		return fmt.Errorf("%w: %s is for the engines %s, %s and %s, not for %s; remove it", ErrManifest, m.upstreamField(), EngineTriton, EngineTensorFlowServing, EngineMLServer, m.Engine)
	case m.Processed() && filepath.Ext(m.Handler) == ".py":
		return fmt.Errorf("%w: handler is %q; a handler in Python needs the engine %s or %s; for an ONNX model write a program, as handler.go", ErrManifest, m.Handler, EngineTensorFlow, EnginePython)
	case m.Engine == EngineONNX && m.Requirements != "":
		return fmt.Errorf("%w: requirements is for the engines %s and %s, not for %s; remove it", ErrManifest, EngineTensorFlow, EnginePython, m.Engine)
	case m.Engine == EngineONNX && m.Model == "" && m.Models == nil:
		return fmt.Errorf("%w: model is missing; write the name of the model's file in the bundle, as `model: model.onnx`", ErrManifest)
	case m.Engine == EngineTensorFlow && m.Model == "":
		return fmt.Errorf("%w: model is missing; write the name of the SavedModel's directory or the Keras file in the bundle, as `model: saved_model` or `model: model.keras`", ErrManifest)
	case m.Engine == EnginePython && m.Handler == "":
		return fmt.Errorf("%w: handler is missing; write the name of the Python file in the bundle that has load and handle, as `handler: handler.py`", ErrManifest)
	case m.InPython() && m.Handler != "" && filepath.Ext(m.Handler) != ".py":
		return fmt.Errorf("%w: handler is %q; it must be a Python file, as handler.py", ErrManifest, m.Handler)
	}
	if m.Upstream() {
		if err := m.validateUpstreamModel(); err != nil {
			return err
		}
	}
	if err := m.validateModels(); err != nil {
		return err
	}
	for _, field := range m.files() {
		if field.name != "" && !filepath.IsLocal(field.name) {
			return fmt.Errorf("%w: %s is %q; it must be a path inside the bundle", ErrManifest, field.key, field.name)
		}
	}
	return nil
}

// named is a field of the manifest and the file that it names.
type named struct{ key, name string }

func (m Manifest) files() []named {
	files := []named{{"model", m.Model}, {"handler", m.Handler}, {"requirements", m.Requirements}}
	if m.Text != nil {
		files = append(files, named{"text.tokenizer", m.Text.Tokenizer})
		for _, d := range m.Text.Dense {
			files = append(files, named{"text.dense", d.File})
		}
	}
	return files
}

// checkModel checks the files that a model's manifest names.
func (b *Bundle) checkModel() error {
	for _, field := range b.files() {
		if field.name == "" {
			continue
		}
		check := func() error {
			_, err := b.File(field.name)
			return err
		}
		if field.key == "model" && (b.InPython() || b.Upstream()) {
			check = b.checkWholeModel
		}
		if err := check(); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrManifest, field.key, err)
		}
	}
	if err := b.checkModels(); err != nil || !b.Processed() {
		return err
	}
	if err := b.checkHandlerProgram(); err != nil {
		return fmt.Errorf("%w: handler: %w", ErrManifest, err)
	}
	return nil
}

// checkHandlerProgram checks the program of an ONNX model's handler.
func (b *Bundle) checkHandlerProgram() error {
	name := b.HandlerProgram()
	inside, err := os.OpenRoot(b.Dir)
	if err != nil {
		return fmt.Errorf("open bundle: %w", err)
	}
	defer inside.Close()
	info, err := inside.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && name != b.Handler:
		return fmt.Errorf("the bundle has no program %q for the handler %s; compile it with faas-cli's --remote-builder or the Dockerfile of the template onnx-go-infer: %w", name, b.Handler, err)
	case err != nil:
		return fmt.Errorf("%q of the bundle: %w", name, err)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return fmt.Errorf("%q in the bundle is not executable; make it so with chmod +x", name)
	}
	return nil
}

// checkWholeModel checks a model that may be a directory.
func (b *Bundle) checkWholeModel() error {
	inside, err := os.OpenRoot(b.Dir)
	if err != nil {
		return fmt.Errorf("open bundle: %w", err)
	}
	defer inside.Close()
	what, check := "file or directory", b.checkPythonModel
	if b.Upstream() {
		what, check = "directory", b.checkUpstreamModel
	}
	info, err := inside.Stat(b.Model)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the bundle has no %s %q: %w", what, b.Model, err)
	case err != nil:
		return fmt.Errorf("%q of the bundle: %w", b.Model, err)
	}
	return check(inside, info.IsDir())
}

// checkPythonModel accepts a file or a directory. For TensorFlow without a handler
// it must be a SavedModel's directory or a Keras file.
func (b *Bundle) checkPythonModel(inside *os.Root, isDir bool) error {
	switch {
	case b.Engine != EngineTensorFlow || b.Handler != "":
		return nil
	case !isDir:
		if ending := strings.ToLower(filepath.Ext(b.Model)); ending != ".keras" && ending != ".h5" {
			return fmt.Errorf("%q is neither a SavedModel's directory nor a Keras file (.keras or .h5); write a handler that loads it", b.Model)
		}
		return nil
	}
	if _, err := inside.Stat(filepath.Join(b.Model, savedModelFile)); err != nil {
		return fmt.Errorf("the directory %q has no %s, so it is not a SavedModel; write one with model.export(%[1]q) or tf.saved_model.save, or write a handler that loads the directory", b.Model, savedModelFile)
	}
	return nil
}
