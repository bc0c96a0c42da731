package importing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// The files of MLServer's settings.
const (
	mlserverSettings = "model-settings.json"
	mlserverServer   = "settings.json"
)

// maxDepth is how deep below a directory models are looked for.
const maxDepth = 4

// mlserverModels lists the directories of models, as MLServer finds them.
func mlserverModels(t *documents.Tree, dir string, depth int) (dirs []string) {
	if t.IsFile(path.Join(dir, mlserverSettings)) {
		return []string{dir}
	}
	if depth == 0 {
		return nil
	}
	for _, name := range t.Dirs(dir) {
		dirs = append(dirs, mlserverModels(t, path.Join(dir, name), depth-1)...)
	}
	return dirs
}

func isMLServer(t *documents.Tree) bool { return len(mlserverModels(t, ".", maxDepth)) > 0 }

// readMLServer reads all models in a directory.
func readMLServer(im *Import, t *documents.Tree) error {
	for _, dir := range mlserverModels(t, ".", maxDepth) {
		m := im.add(MLServer, path.Base(path.Clean(t.Path(dir))), t.Path(dir))
		if err := readMLServerModel(t, dir, m); err != nil {
			m.refuse("%v", err)
		}
	}
	return nil
}

// runtime is a class of MLServer that runs models.
type runtime struct {
	// pip is the package that has it.
	pip string
	// format is the format of its models, if that is converted to ONNX.
	format string
}

// mlserverPackages are the packages of MLServer's own runtimes by their modules.
var mlserverPackages = map[string]runtime{
	"mlserver_sklearn":       {"mlserver-sklearn", "sklearn"},
	"mlserver_xgboost":       {"mlserver-xgboost", "xgboost"},
	"mlserver_lightgbm":      {"mlserver-lightgbm", "lightgbm"},
	"mlserver_catboost":      {"mlserver-catboost", "catboost"},
	"mlserver_onnx":          {"mlserver-onnx", "onnx"},
	"mlserver_mlflow":        {"mlserver-mlflow", ""},
	"mlserver_mllib":         {"mlserver-mllib", ""},
	"mlserver-mllib":         {"mlserver-mllib", ""},
	"mlserver_huggingface":   {"mlserver-huggingface", ""},
	"mlserver_alibi_detect":  {"mlserver-alibi-detect", ""},
	"mlserver_alibi_explain": {"mlserver-alibi-explain", ""},
	"mlserver":               {"", ""},
}

// mlserverReader reads a model's directory of MLServer's into a model.
type mlserverReader struct {
	files *documents.Tree
	dir   string
	m     *Model
}

// readMLServerModel makes the function of a model's directory.
func readMLServerModel(t *documents.Tree, dir string, m *Model) error {
	r := mlserverReader{t, dir, m}
	text, err := t.Text(path.Join(dir, mlserverSettings))
	if err != nil {
		return err
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return fmt.Errorf("%s: %w", mlserverSettings, err)
	}
	settings := documents.AsObject("", decoded)
	if name := settings.Text("name"); name != "" && m.Source == MLServer {
		m.Name = name
	}
	module, _, _ := strings.Cut(settings.Text("implementation"), ".")
	if module == "" {
		m.refuse("implementation is missing in its %s; MLServer does not know either what runs it", mlserverSettings)
		return nil
	}
	parameters := settings.Object("parameters")
	uri := parameters.Text("uri")
	m.setMaxBatch(settings, "max_batch_size")
	m.lose(settings, "the objective decides how long a request waits for a batch", "max_batch_time",
		"adaptive_batching")
	m.lose(settings, "the provider runs instances, of one process each", "parallel_workers",
		"inference_pool_grace_period", "warm_workers")
	m.lose(settings, "answers are not cached", "cache_enabled", "cache_size")
	m.lose(settings, "a function has one version; each deployment makes a revision", "versions")
	m.lose(parameters, "a function has one version; each deployment makes a revision", "version")
	m.lose(parameters, "name its packages in requirements.txt", "environment_tarball", "environment_path",
		"inference_pool_gid")
	known, isKnown := mlserverPackages[module]
	signed := len(settings.List("inputs")) > 0 && len(settings.List("outputs")) > 0
	if isKnown && known.format != "" && !signed {
		return r.convert(uri, settings, known)
	}
	m.note(Kept, "implementation", settings.Text("implementation"),
		"engine mlserver: MLServer runs the model, in batches that faas-infer forms")
	m.bundle = &made{manifest: bundle.Manifest{Name: m.Name, Engine: bundle.EngineMLServer, Model: modelDir}}
	m.addDir(t, dir, modelDir)
	r.requirements(module, known, isKnown)
	if strings.Contains(uri, "://") || path.IsAbs(uri) || uri != "" && !fs.ValidPath(path.Clean(uri)) {
		m.step(
			"Copy the files at parameters.uri, %s, into BUNDLE/%s, and write their name there into parameters.uri of its %s",
			uri, modelDir, mlserverSettings)
	} else if uri != "" && !exists(t, path.Join(dir, uri)) {
		m.step("Put %s into BUNDLE/%s: parameters.uri of its %s names it, and it is "+
			"missing", uri, modelDir, mlserverSettings)
	}
	if !signed {
		m.step(
			"Write inputs and outputs with their shapes, -1 for the batch, into BUNDLE/%s: an instance must know them",
			path.Join(modelDir, mlserverSettings))
	}
	for key := range settings.Fields { // MLServer reads the rest from the bundle.
		settings.Read[key] = true
	}
	return r.server()
}

// convert makes an ONNX function of a model that MLServer runs by a library, and for which its
// settings do not say what it takes.
func (r mlserverReader) convert(uri string, settings *documents.Object, known runtime) error {
	t, dir, m := r.files, r.dir, r.m
	m.lose(settings, "the model's file says what it takes and gives", "inputs", "outputs", "platform")
	m.loseRest(settings.Object("parameters").Without("uri", "version"))
	m.loseRest(settings)
	if strings.Contains(uri, "://") || path.IsAbs(uri) || uri != "" && !fs.ValidPath(path.Clean(uri)) {
		m.refuse("parameters.uri is %s, which is not in its directory; copy the file there and import again", uri)
		return nil
	}
	in := path.Join(dir, uri)
	switch {
	case uri != "" && !exists(t, in):
		m.refuse("parameters.uri is %s, and the directory has no such file", uri)
	case known.format == "onnx":
		if t.IsDir(in) {
			if found := t.With(in, ".onnx"); len(found) > 0 {
				in = found[0]
			}
		}
		m.note(Kept, "implementation", settings.Text("implementation"), "engine onnx")
		m.setONNX(t, in)
	case t.IsDir(in):
		m.setKind(t, in, known.format)
	default:
		m.note(Changed, "implementation", settings.Text("implementation"),
			"ONNX, converted from %s, which lets faas-infer batch and size it", path.Base(in))
		m.setConversion(t, in, kinds[known.format].flags...)
	}
	return r.server()
}

// requirements names the packages that the model's runtime needs.
func (r mlserverReader) requirements(module string, known runtime, isKnown bool) {
	t, dir, m := r.files, r.dir, r.m
	needs := known.pip
	if given := path.Join(dir, requirements); t.IsFile(given) {
		text, err := t.Text(given)
		if err != nil {
			m.refuse("%v", err)
			return
		}
		needs = strings.TrimSpace(string(text) + "\n" + needs)
		m.note(Kept, requirements, nil, "%s of the bundle", requirements)
	}
	if needs != "" {
		m.bundle.manifest.Requirements = requirements
		m.bundle.files = append(m.bundle.files, file{to: requirements, text: []byte(needs + "\n")})
	}
	own := t.IsFile(path.Join(dir, module+".py")) || t.IsDir(path.Join(dir, module))
	if !isKnown && !own {
		m.step(
			"Name the package with the module %s in BUNDLE/%s, and `requirements: %s` in its %s",
			module,
			requirements,
			requirements,
			bundle.ManifestFile,
		)
	}
	for _, name := range []string{"environment.yml", "environment.yaml", "conda.yaml"} {
		if t.IsFile(path.Join(dir, name)) {
			m.note(Lost, name, nil, "environments are pip's; name its packages in %s", requirements)
		}
	}
}

// server reports the settings of the server beside the model's.
func (r mlserverReader) server() error {
	t, dir, m := r.files, r.dir, r.m
	text, err := t.Text(path.Join(dir, mlserverServer))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return fmt.Errorf("%s: %w", mlserverServer, err)
	}
	server := documents.AsObject(mlserverServer, decoded)
	for _, key := range server.Unread() {
		if !slices.Contains([]string{"debug"}, key) {
			m.note(
				Lost,
				server.Path(key),
				server.Get(key),
				"the provider is the server; `faas-infer up --help` lists its flags",
			)
		}
	}
	return nil
}
