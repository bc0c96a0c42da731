package bundle

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The engines that are third-party model servers. An instance forwards to them.
const (
	// EngineTriton is NVIDIA's Triton Inference Server. The model is a directory of
	// its model repository: config.pbtxt and a directory for each version.
	EngineTriton = "triton"
	// EngineTensorFlowServing is TensorFlow Serving. The model is a SavedModel's
	// directory, or a directory with a SavedModel for each version.
	EngineTensorFlowServing = "tensorflow-serving"
	// EngineMLServer is Seldon's MLServer. The model is a directory with
	// model-settings.json.
	EngineMLServer = "mlserver"
)

// The files that identify the model directories of Triton and MLServer.
const (
	tritonConfig     = "config.pbtxt"
	mlserverSettings = "model-settings.json"
)

// Upstream reports whether a third-party model server runs the model.
func (m Manifest) Upstream() bool {
	return m.Engine == EngineTriton || m.Engine == EngineTensorFlowServing || m.Engine == EngineMLServer
}

// Whole reports whether the model is more than one file. The manifest's file then
// identifies it.
func (m Manifest) Whole() bool { return m.InPython() || m.Upstream() || m.Processed() }

// upstreamField names the first set field that only models of model servers have, ""
// if there is none.
func (m Manifest) upstreamField() string {
	switch {
	case m.Server != "":
		return "server"
	case m.ServerURL != "":
		return "server_url"
	case m.ModelName != "":
		return "model_name"
	}
	return ""
}

// validateUpstreamModel checks the fields, not the files in the bundle.
func (m Manifest) validateUpstreamModel() error {
	first, _, _ := strings.Cut(strings.TrimSpace(m.Server), " ")
	switch {
	case m.Handler != "":
		return fmt.Errorf("%w: handler is for the engines %s and %s; put the code that %s runs into the model's directory", ErrManifest, EngineTensorFlow, EnginePython, m.Engine)
	case m.Requirements != "" && m.Engine == EngineTensorFlowServing:
		return fmt.Errorf("%w: requirements is for engines that run Python, not for %s; remove it", ErrManifest, m.Engine)
	case strings.ContainsAny(m.ModelName, "/\\:?#% \t\n\x00"):
		return fmt.Errorf("%w: model_name is %q; it becomes a part of the server's paths; write it as spam or spam-filter", ErrManifest, m.ModelName)
	case m.ServerURL != "":
		return m.validateServerURL()
	case m.Model == "":
		return fmt.Errorf("%w: model is missing; write the name of the directory in the bundle that %s", ErrManifest, m.wantsDirectory())
	case strings.ContainsRune(m.Server, 0):
		return fmt.Errorf("%w: server is %q; it must not contain NUL", ErrManifest, m.Server)
	case relative(first) && !filepath.IsLocal(first):
		return fmt.Errorf("%w: server is %q; it must begin with a file of the bundle, with a program's name or with an absolute path", ErrManifest, m.Server)
	}
	return nil
}

func (m Manifest) validateServerURL() error {
	for _, other := range []named{{"model", m.Model}, {"server", m.Server}, {"requirements", m.Requirements}} {
		if other.name != "" {
			return fmt.Errorf("%w: %s is for a server that the instance starts, server_url for one that runs already; remove one of them", ErrManifest, other.key)
		}
	}
	if m.ModelName == "" && m.Name == "" {
		return fmt.Errorf("%w: model_name is missing; write the model's name in the server at server_url", ErrManifest)
	}
	u, err := url.Parse(m.ServerURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%w: server_url is %q; write the address of the server's REST API, as http://10.0.0.7:8501", ErrManifest, m.ServerURL)
	}
	return nil
}

// wantsDirectory describes the engine's model directory, for an error.
func (m Manifest) wantsDirectory() string {
	switch m.Engine {
	case EngineTriton:
		return "has " + tritonConfig + " and the directory 1, as a model in Triton's repository"
	case EngineMLServer:
		return "has " + mlserverSettings
	}
	return "has " + savedModelFile + ", or a directory with it for each version"
}

// checkUpstreamModel checks that a directory is a model of the engine.
func (b *Bundle) checkUpstreamModel(inside *os.Root, isDir bool) error {
	if !isDir {
		return fmt.Errorf("%q in the bundle is not a directory; %s needs one that %s", b.Model, b.Engine, b.wantsDirectory())
	}
	has := func(name string) bool {
		_, err := inside.Stat(filepath.Join(b.Model, name))
		return err == nil
	}
	version := Version(inside.FS(), filepath.ToSlash(filepath.Clean(b.Model)))
	switch b.Engine {
	case EngineTriton:
		if version == "" {
			return fmt.Errorf("the directory %q has no directory of a version; put the model's file into %q, as in Triton's repository", b.Model, filepath.Join(b.Model, "1"))
		}
		return nil
	case EngineMLServer:
		if has(mlserverSettings) {
			return nil
		}
	default:
		if has(savedModelFile) || version != "" && has(filepath.Join(version, savedModelFile)) {
			return nil
		}
	}
	return fmt.Errorf("the directory %q is not a model of %s; it needs one that %s", b.Model, b.Engine, b.wantsDirectory())
}

// Version is the name of the latest version's directory in a model's directory, ""
// if there is none. Versions are whole numbers from 1.
func Version(files fs.FS, dir string) string {
	entries, err := fs.ReadDir(files, dir)
	if err != nil {
		return ""
	}
	latest, name := uint64(0), ""
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Name(), 10, 63)
		if err == nil && n > latest && e.IsDir() {
			latest, name = n, e.Name()
		}
	}
	return name
}

// Served is the model's name in the model server: model_name, or the manifest's name
// with a hyphen for every character that a path cannot have.
func (m Manifest) Served() string {
	if m.ModelName != "" {
		return m.ModelName
	}
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r) {
			return r
		}
		return '-'
	}, m.Name)
}
