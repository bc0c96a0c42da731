package bundle

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

const (
	// imageAnnotation says how a bundle's models expect images.
	imageAnnotation = "com.openfaas.infer.image"
	// maxModels is the maximum number of a bundle's models, and maxModelName that of
	// the characters of a name in it.
	maxModels, maxModelName = 64, 64
)

// The metrics of [Validation]. The accuracy is the percentage of the rows whose label is
// the class with the highest score, or one of the five highest.
const (
	MetricTop1 = "top-1"
	MetricTop5 = "top-5"
)

// ManifestModel is one of several models that answer the same requests with different
// accuracy and speed.
type ManifestModel struct {
	// Name is unique in the bundle: lower-case letters, digits and '-'.
	Name string `yaml:"name"`
	// Model is the ONNX file, relative to the bundle.
	Model string `yaml:"model"`
	// Image says how the model expects images, as com.openfaas.infer.image does. The
	// annotation is the default.
	Image string `yaml:"image,omitempty"`
	// Accuracy is in percent. It is stated by the author and not measured; nil if it is
	// unknown.
	Accuracy *float64 `yaml:"accuracy,omitempty"`
}

// Validation names labelled data on which accuracy is measured.
type Validation struct {
	// Data is a .npz file, or a directory with a directory of images for each class,
	// relative to the bundle.
	Data string `yaml:"data"`
	// Metric is [MetricTop1], the default, or [MetricTop5].
	Metric string `yaml:"metric,omitempty"`
}

// Registered lists the bundle's models: those of the field models, or the only one by
// the bundle's name. A model's Image is the annotation's unless it sets one. A program
// has no models.
func (m Manifest) Registered() []ManifestModel {
	if m.IsProgram() {
		return nil
	}
	all := slices.Clone(m.Models)
	if len(all) == 0 {
		all = []ManifestModel{{Name: m.Name, Model: m.Model}}
	}
	for i := range all {
		if all[i].Image == "" {
			all[i].Image = m.Annotations[imageAnnotation]
		}
	}
	return all
}

// Signature holds a model's inputs and outputs.
type Signature struct{ Inputs, Outputs []tensor.Info }

// Alike returns an error unless all models answer the same requests: with inputs of the same
// names, types and shapes, and outputs of the same types and shapes, so with the same
// classes. Models for images may differ in the sides of their images. signatures has one for
// each model.
func Alike(models []ManifestModel, signatures []Signature) error {
	for i := 1; i < len(models); i++ {
		first, other := signatures[0], signatures[i]
		images := models[0].Image != "" && models[i].Image != ""
		same := slices.EqualFunc(first.Inputs, other.Inputs, func(a, b tensor.Info) bool {
			return a.Name == b.Name && a.Type == b.Type && (slices.Equal(a.Shape, b.Shape) || images)
		})
		if !same {
			return fmt.Errorf("models[%d] (%s) has the inputs %v, and models[0] (%s) has %v; models of one application take the same requests", i, models[i].Name, other.Inputs, models[0].Name, first.Inputs)
		}
		same = slices.EqualFunc(first.Outputs, other.Outputs, func(a, b tensor.Info) bool {
			return a.Type == b.Type && slices.Equal(a.Shape, b.Shape)
		})
		if !same {
			return fmt.Errorf("models[%d] (%s) has the outputs %v, and models[0] (%s) has %v; models of one application answer with the same classes", i, models[i].Name, other.Outputs, models[0].Name, first.Outputs)
		}
	}
	return nil
}

// firstModel is the file of the only model, or of the first of several.
func (m Manifest) firstModel() string {
	if len(m.Models) > 0 {
		return m.Models[0].Model
	}
	return m.Model
}

// validateModels checks the fields models and validation.
func (m Manifest) validateModels() error {
	if m.Validation != nil {
		if err := m.validateValidation(); err != nil {
			return err
		}
	}
	switch {
	case m.Models == nil:
		return nil
	case m.Model != "":
		return fmt.Errorf("%w: model is %q and models lists others; list it there, too, and remove model", ErrManifest, m.Model)
	case m.Handler != "":
		return fmt.Errorf("%w: handler is for one model, not for models; remove one of them", ErrManifest)
	case len(m.Models) == 0:
		return fmt.Errorf("%w: models is empty; list the bundle's models in it, each as `- {name: resnet50, model: resnet50.onnx}`, or write `model: model.onnx` instead if there is only one", ErrManifest)
	case len(m.Models) > maxModels:
		return fmt.Errorf("%w: models has %d models; list at most %d", ErrManifest, len(m.Models), maxModels)
	}
	names, files := map[string]int{}, map[string]int{}
	for i, one := range m.Models {
		if err := one.validate(); err != nil {
			return fmt.Errorf("%w: models[%d].%w", ErrManifest, i, err)
		}
		if other, twice := names[one.Name]; twice {
			return fmt.Errorf("%w: models[%d].name is %q, as that of models[%d]; give each model its own name", ErrManifest, i, one.Name, other)
		}
		if other, twice := files[filepath.Clean(one.Model)]; twice {
			return fmt.Errorf("%w: models[%d].model is %q, as that of models[%d]; list each file once", ErrManifest, i, one.Model, other)
		}
		names[one.Name], files[filepath.Clean(one.Model)] = i, i
	}
	return nil
}

// validate returns an error that begins with the field's name.
func (m ManifestModel) validate() error {
	switch {
	case !validModelName(m.Name):
		return fmt.Errorf("name is %q; it must be 1 to %d lower-case letters, digits and '-', and begin and end with a letter or digit", m.Name, maxModelName)
	case m.Model == "":
		return errors.New("model is missing; write the name of the model's file in the bundle, as model: model.onnx")
	case !filepath.IsLocal(m.Model):
		return fmt.Errorf("model is %q; it must be a path inside the bundle", m.Model)
	case m.Accuracy != nil && !(*m.Accuracy > 0 && *m.Accuracy <= 100):
		return fmt.Errorf("accuracy is %v; it must be a percentage above 0 and at most 100; remove it if it is unknown", *m.Accuracy)
	}
	if m.Image == "" {
		return nil
	}
	if _, err := model.ParseImageForm(m.Image); err != nil {
		return fmt.Errorf("image is %q; %w, for example %s", m.Image, err, model.Example)
	}
	return nil
}

func validModelName(name string) bool {
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !letter && (r != '-' || i == 0 || i == len(name)-1) {
			return false
		}
	}
	return name != "" && len(name) <= maxModelName
}

func (m Manifest) validateValidation() error {
	v := m.Validation
	switch {
	case m.Engine != EngineONNX || m.Handler != "":
		return fmt.Errorf("%w: validation is for models of the engine %s without a handler; remove it", ErrManifest, EngineONNX)
	case v.Data == "":
		return fmt.Errorf("%w: validation.data is missing; write a file or directory of the bundle, as data: validation.npz", ErrManifest)
	case !filepath.IsLocal(v.Data) || strings.ContainsRune(v.Data, 0):
		return fmt.Errorf("%w: validation.data is %q; it must be a path inside the bundle", ErrManifest, v.Data)
	case v.Metric != "" && v.Metric != MetricTop1 && v.Metric != MetricTop5:
		return fmt.Errorf("%w: validation.metric is %q; it must be %s or %s", ErrManifest, v.Metric, MetricTop1, MetricTop5)
	}
	return nil
}

// checkModels checks the files of the fields models and validation.
func (b *Bundle) checkModels() error {
	for i, one := range b.Models {
		if _, err := b.File(one.Model); err != nil {
			return fmt.Errorf("%w: models[%d].model: %w", ErrManifest, i, err)
		}
	}
	if b.Validation == nil {
		return nil
	}
	if _, err := b.stat(b.Validation.Data); err != nil {
		return fmt.Errorf("%w: validation.data: %w", ErrManifest, err)
	}
	return nil
}

// CheckAlike reads the signatures of the bundle's models. It returns an error unless all answer the same
// requests.
func (b *Bundle) CheckAlike() error {
	models := b.Registered()
	var signatures []Signature
	for _, m := range models {
		file, err := b.File(m.Model)
		if err != nil {
			return err
		}
		read, err := model.ReadFile(file)
		if err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
		if _, err := read.Graph(1); err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
		signatures = append(signatures, Signature{Inputs: read.Inputs(), Outputs: read.Outputs()})
	}
	if err := Alike(models, signatures); err != nil {
		return fmt.Errorf("%s: %w", ManifestFile, err)
	}
	return nil
}
