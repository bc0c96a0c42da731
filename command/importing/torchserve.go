package importing

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// marManifest is the file that an archive of TorchServe has.
const marManifest = "MAR-INF/MANIFEST.json"

// classNames is the file with names of classes that TorchServe's handlers read.
const classNames = "index_to_name.json"

func isTorchServe(t *documents.Tree) bool { return t.IsFile(marManifest) }

// readTorchServe reads an archive, or its unpacked directory.
func readTorchServe(im *Import, t *documents.Tree) error {
	m := im.add(TorchServe, strings.TrimSuffix(path.Base(path.Clean(t.Given)), ".mar"), t.Given)
	if err := readArchive(t, m); err != nil {
		m.refuse("%v", err)
	}
	return nil
}

// torchHandlers are the handlers that TorchServe itself has, and what they do beside the model.
var torchHandlers = map[string]string{
	"base_handler":     "",
	"image_classifier": "it reads an image file, and returns the five likeliest classes",
	"image_segmenter":  "it reads an image file",
	"object_detector":  "it reads an image file, and returns boxes above a threshold",
	"text_classifier":  "it splits a text into words and looks them up",
}

// imageForm is how TorchServe's handler of image classes scales images: the shorter side to 256 pixels, of
// which 224 in the middle are taken, with the means and deviations of ImageNet's colours.
const imageForm = "224x224 fit=crop mean=0.485,0.456,0.406 std=0.229,0.224,0.225"

// torchReader reads an archive of TorchServe's into a model.
type torchReader struct {
	files *documents.Tree
	m     *Model
}

// readArchive makes the function of an archive.
func readArchive(t *documents.Tree, m *Model) error {
	r := torchReader{t, m}
	text, err := t.Text(marManifest)
	if err != nil {
		return err
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return fmt.Errorf("%s: %w", marManifest, err)
	}
	manifest := documents.AsObject("", decoded)
	of := manifest.Object("model")
	if name := of.Text("modelName"); name != "" && m.Source == TorchServe {
		m.Name = name
	}
	m.lose(of, "a function has one version; each deployment makes a revision", "modelVersion")
	manifest.Without("createdOn", "archiverVersion", "modelServerVersion", "implementationVersion",
		"specificationVersion", "runtime")
	handler, serialized, code := of.Text("handler"), of.Text("serializedFile"), of.Text("modelFile")
	if err := r.settings(of.Text("configFile")); err != nil {
		return err
	}
	for _, name := range []string{serialized, code} {
		if name != "" && !t.IsFile(name) {
			m.refuse("its manifest names the file %s, which it does not have", name)
			return nil
		}
	}
	of.Without("extraFiles")
	does, builtin := torchHandlers[handler]
	switch {
	case !builtin:
		r.handler(handler, code, serialized, of.Text("requirementsFile"))
	case serialized == "":
		m.refuse("its manifest names no serializedFile, and its handler %s has no model without one", handler)
	case code != "":
		r.handler(handler, code, serialized, of.Text("requirementsFile"))
		m.note(Lost, "model.modelFile", code,
			"the file has weights alone, and this code makes the model; it is in the bundle's torchserve")
	case path.Ext(serialized) == ".onnx":
		m.note(Kept, "model.serializedFile", serialized, "engine onnx")
		m.setONNX(t, serialized)
	default:
		m.note(Changed, "model.serializedFile", serialized,
			"ONNX, converted from it, which lets faas-infer batch and size it")
		m.setConversion(t, serialized, torchInputs(handler))
	}
	if builtin && m.State != Refused && m.bundle.manifest.Engine == bundle.EngineONNX {
		r.builtin(handler, does)
	}
	m.loseRest(of)
	m.loseRest(manifest)
	return nil
}

// torchInputs returns the flag of model convert for the input that a handler gives the model.
func torchInputs(handler string) string {
	if handler == "image_classifier" {
		return "--input image=float32[?,3,224,224]"
	}
	return kinds["pytorch"].flags[0]
}

// builtin says what becomes of a handler of TorchServe's own.
func (r torchReader) builtin(handler, does string) {
	t, m := r.files, r.m
	if handler == "image_classifier" {
		m.annotate(annotation.InferImage, imageForm, "model.handler", handler)
	} else if does != "" {
		m.note(Lost, "model.handler", handler, "%s; the function takes and gives the model's tensors", does)
	}
	text, err := t.Text(classNames)
	if err != nil {
		return
	}
	if labels := torchLabels(text); labels != nil {
		m.note(Changed, classNames, nil, "%s in the bundle", bundle.LabelsFile)
		m.bundle.files = append(m.bundle.files,
			file{to: bundle.LabelsFile, text: []byte(strings.Join(labels, "\n") + "\n")})
	}
}

// maxClasses is the maximum number of classes with a name.
const maxClasses = 1 << 20

// torchLabels returns the names of classes by index, nil if the text is in no known form: names by index, or
// lists of names whose last is the one for people.
func torchLabels(text []byte) []string {
	var by map[int]any
	if json.Unmarshal(text, &by) != nil {
		return nil
	}
	var labels []string
	for index, value := range by {
		if index < 0 || index >= maxClasses {
			return nil
		}
		if all, ok := value.([]any); ok && len(all) > 0 {
			value = all[len(all)-1]
		}
		name, ok := value.(string)
		if !ok {
			return nil
		}
		if missing := index + 1 - len(labels); missing > 0 {
			labels = append(labels, make([]string, missing)...)
		}
		labels[index] = strings.Join(strings.Fields(name), " ")
	}
	return labels
}

// torchDir is the directory of the bundle with an archive's files.
const torchDir = "torchserve"

// handler makes the bundle of a model whose code must become a handler.
func (r torchReader) handler(handler, code, serialized, requires string) {
	t, m := r.files, r.m
	service, _, _ := strings.Cut(handler, ":")
	m.note(Lost, "model.handler", handler,
		"handlers get TorchServe's requests; BUNDLE/handler.py is where its code goes on")
	m.bundle = &made{
		manifest: bundle.Manifest{
			Name:         m.Name,
			Engine:       bundle.EnginePython,
			Handler:      "handler.py",
			Requirements: requirements,
		},
	}
	if serialized != "" {
		m.bundle.manifest.Model = path.Join(torchDir, serialized)
	}
	m.addDir(t, ".", torchDir)
	needs := "torch\n"
	if requires != "" && t.IsFile(requires) {
		text, err := t.Text(requires)
		if err != nil {
			m.refuse("%v", err)
			return
		}
		needs += strings.TrimSpace(string(text)) + "\n"
		m.note(Kept, "model.requirementsFile", requires, "%s of the bundle", requirements)
	}
	m.bundle.files = append(m.bundle.files,
		file{to: requirements, text: []byte(needs)},
		file{to: "handler.py", text: []byte(fmt.Sprintf(torchSkeleton, handler, torchDir))})
	from := slices.DeleteFunc([]string{service, code}, func(name string) bool { return name == "" })
	m.step("Write inputs, outputs, load and handle into BUNDLE/handler.py; the code of %s is in BUNDLE/%s",
		strings.Join(from, " and "), torchDir)
}

// torchSkeleton is the handler that a user completes. Its arguments are the handler of TorchServe and the
// directory of the archive's files.
const torchSkeleton = `"""What was %s in TorchServe. Complete the parts that are empty or raise NotImplementedError."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), %q))

# Names, types and shapes of the inputs and outputs; the shapes are those of one row.
inputs = {}  # for example {"image": ("float32", [3, 224, 224])}
outputs = {}  # for example {"classes": ("float32", [1000])}


def load(path):
    """Called once, before the first request, with the path of the model. It was initialize(context)."""
    raise NotImplementedError("load the model, as initialize did")


def handle(batch):
    """Receives a list of requests, each with an array for each input, and returns as many answers.

    It was preprocess, inference and postprocess, which got one list of requests, too.
    """
    raise NotImplementedError("compute the answers, as handle did")
`

// settings reads model-config.yaml.
func (r torchReader) settings(name string) error {
	t, m := r.files, r.m
	if name == "" || !t.IsFile(name) {
		return nil
	}
	text, err := t.Text(name)
	if err != nil {
		return err
	}
	var decoded any
	if err := yaml.Unmarshal(text, &decoded); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	settings := documents.AsObject(name, decoded)
	m.setMaxBatch(settings, "batchSize")
	m.setScale(settings, "minWorkers", "maxWorkers")
	switch device := settings.Text("deviceType"); device {
	case "gpu":
		m.setDevice(annotation.DeviceCUDA, settings.Path("deviceType"), device)
	case "cpu":
		m.setDevice(annotation.DeviceCPU, settings.Path("deviceType"), device)
	}
	m.lose(settings, "the objective decides how long a request waits for a batch", "maxBatchDelay")
	m.lose(settings, "the objective decides how long a request may take", "responseTimeout", "startupTimeout")
	m.loseRest(settings)
	return nil
}
