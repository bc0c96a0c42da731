package importing

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// The files that identify a model and a Bento, and that which names the latest version of a model.
const (
	bentoModel  = "model.yaml"
	bentoFile   = "bento.yaml"
	bentoLatest = "latest"
)

// isBentoModel reports whether a directory is a version of a model in BentoML's store.
func isBentoModel(t *documents.Tree, dir string) bool {
	text, err := t.Text(path.Join(dir, bentoModel))
	return err == nil &&
		(strings.Contains(string(text), "bentoml_version:") || strings.Contains(string(text), "module: bentoml."))
}

// isBentoML reports whether a tree is a version of a model, a model with versions, a store, or a Bento.
func isBentoML(t *documents.Tree) bool {
	if isBentoModel(t, ".") || t.IsFile(bentoFile) {
		return true
	}
	for _, name := range t.Dirs(".") {
		if isBentoModel(t, name) {
			return true
		}
		if slices.ContainsFunc(
			t.Dirs(name),
			func(version string) bool { return isBentoModel(t, path.Join(name, version)) },
		) {
			return true
		}
	}
	return false
}

// readBentoML reads the latest version of each model.
func readBentoML(im *Import, t *documents.Tree) error {
	if isBentoModel(t, ".") {
		return readBentoVersion(t, ".", nil, im)
	}
	if t.IsFile(bentoFile) {
		if !t.IsDir("models") {
			m := im.add(BentoML, path.Base(t.Given), t.Given)
			m.refuse(
				"it is a Bento, a service with its code, and has no model inside; import the models that it names from " +
					"BentoML's store")
			return nil
		}
	}
	for _, name := range append([]string{"."}, t.Dirs(".")...) {
		versions := slices.DeleteFunc(
			t.Dirs(name),
			func(v string) bool { return !isBentoModel(t, path.Join(name, v)) },
		)
		if len(versions) == 0 {
			continue
		}
		latest := versions[len(versions)-1]
		if text, err := t.Text(path.Join(name, bentoLatest)); err == nil &&
			slices.Contains(versions, strings.TrimSpace(string(text))) {
			latest = strings.TrimSpace(string(text))
		}
		others := slices.DeleteFunc(versions, func(v string) bool { return v == latest })
		if err := readBentoVersion(t, path.Join(name, latest), others, im); err != nil {
			return err
		}
	}
	return nil
}

// readBentoVersion reads a version of a model. others are the versions that are left out.
func readBentoVersion(t *documents.Tree, dir string, others []string, im *Import) error {
	m := im.add(BentoML, path.Base(path.Clean(t.Path(dir))), t.Path(dir))
	if err := readBentoModel(t, dir, m); err != nil {
		m.refuse("%v", err)
	}
	if len(others) > 0 {
		m.note(Lost, "versions", strings.Join(others, ", "),
			"the latest is imported; import the directory of another one by itself")
	}
	return nil
}

// bentoFormats are the formats of modules of BentoML that are converted, with the files that they write.
var bentoFormats = map[string]struct{ format, file string }{
	"sklearn": {
		"sklearn",
		"saved_model.pkl",
	}, "xgboost": {"xgboost", "saved_model.ubj"}, "lightgbm": {"lightgbm", "saved_model.txt"},
	"catboost": {
		"catboost",
		"saved_model.cbm",
	}, "torchscript": {"pytorch", "saved_model.pt"}, "keras": {"keras", "saved_model.keras"},
}

// readBentoModel makes the function of a version of a model.
func readBentoModel(t *documents.Tree, dir string, m *Model) error {
	text, err := t.Text(path.Join(dir, bentoModel))
	if err != nil {
		return err
	}
	var decoded any
	if err := yaml.Unmarshal(text, &decoded); err != nil {
		return fmt.Errorf("%s: %w", bentoModel, err)
	}
	settings := documents.AsObject("", decoded)
	m.Name = cmp.Or(settings.Text("name"), m.Name)
	m.note(Lost, "version", settings.Text("version"), "a function has one version; each deployment makes a revision")
	settings.Without("bentoml_version", "creation_time", "api_version", "context", "options")
	for key, value := range settings.Strings("labels") {
		m.keep(&m.deployment.Labels, key, value, "labels."+key, "label")
	}
	m.lose(settings, "put what people should know into the bundle's description", "metadata")
	for name := range settings.Object("signatures").Fields {
		signature := settings.Object("signatures").Object(name)
		if batchable := signature.Text("batchable"); batchable != "" {
			m.note(Changed, signature.Path("batchable"), batchable,
				"the provider finds out whether the model takes batches; %s: \"1\" forbids them",
				annotation.InferMaxBatch)
		}
	}
	if t.IsFile(path.Join(dir, "custom_objects.pkl")) {
		m.note(Lost, "custom_objects.pkl", nil, "it needs the code of your service")
	}
	module := settings.Text("module")
	short := strings.TrimPrefix(strings.TrimPrefix(module, "bentoml."), "_internal.frameworks.")
	known, convertible := bentoFormats[short]
	saved, isSaved := savedModel(t, dir)
	switch {
	case short == "onnx":
		file := t.Find(dir, "saved_model.onnx", "model.onnx")
		if file == "" {
			m.refuse("it has no saved_model.onnx")
			return nil
		}
		m.note(Kept, "module", module, "engine onnx")
		m.setONNX(t, file)
	case isSaved:
		m.note(Kept, "module", module, "engine %s", bundle.EngineTensorFlow)
		m.setSavedModel(t, saved)
	case convertible && t.IsFile(path.Join(dir, known.file)):
		m.note(Changed, "module", module, "ONNX, converted from %s", known.file)
		m.setConversion(t, path.Join(dir, known.file), kinds[known.format].flags...)
	case convertible:
		m.setKind(t, dir, known.format)
	default:
		m.refuse("its module is %q, whose models need Python; write a handler (template python-infer) that loads %s",
			module, t.Path(dir))
	}
	m.loseRest(settings)
	return nil
}
