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

// The engines that are model servers of others, before which an instance stands.
const (
	// EngineTriton is NVIDIA's Triton Inference Server. The model is a directory as
	// one in its repository: config.pbtxt and a directory for each version.
	EngineTriton = "triton"
	// EngineTensorFlowServing is TensorFlow Serving. The model is a SavedModel's
	// directory, or one with a SavedModel for each version.
	EngineTensorFlowServing = "tensorflow-serving"
	// EngineMLServer is Seldon's MLServer. The model is a directory with
	// model-settings.json.
	EngineMLServer = "mlserver"
)

// The files by which directories of models of Triton and of MLServer are recognised.
const (
	tritonConfig     = "config.pbtxt"
	mlserverSettings = "model-settings.json"
)

// Upstream reports whether a model server of others runs the model.
func (m Manifest) Upstream() bool {
	return m.Engine == EngineTriton || m.Engine == EngineTensorFlowServing || m.Engine == EngineMLServer
}

// Whole reports whether the manifest stands for the model where a file is wanted,
// because the model consists of more than a file.
func (m Manifest) Whole() bool { return m.InPython() || m.Upstream() || m.Processed() }

// upstreamField names a field that only models of upstream servers have; the empty
// string if there is none.
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

// validateUpstreamModel checks what the fields say, not what is in the bundle.
func (m Manifest) validateUpstreamModel() error {
	first, _, _ := strings.Cut(strings.TrimSpace(m.Server), " ")
	switch {
	case m.Handler != "":
		return fmt.Errorf("%w: handler is for the engines %s and %s; write what %s runs into its model's directory", ErrManifest, EngineTensorFlow, EnginePython, m.Engine)
	case m.Requirements != "" && m.Engine == EngineTensorFlowServing:
		return fmt.Errorf("%w: requirements is for engines that run Python, and %s does not", ErrManifest, m.Engine)
	case strings.ContainsAny(m.ModelName, "/\\:?#% \t\n\x00"):
		return fmt.Errorf("%w: model_name is %q; it is a part of the server's paths, as spam or spam-filter", ErrManifest, m.ModelName)
	case m.ServerURL != "":
		return m.validateServerURL()
	case m.Model == "":
		return fmt.Errorf("%w: model is missing; write the name of the directory in the bundle that %s", ErrManifest, m.wantsDirectory())
	case strings.ContainsRune(m.Server, 0):
		return fmt.Errorf("%w: server is %q; a command has no NUL in it", ErrManifest, m.Server)
	case relative(first) && !filepath.IsLocal(first):
		return fmt.Errorf("%w: server is %q; it must begin with a file of the bundle, with a program's name or with an absolute path", ErrManifest, m.Server)
	}
	return nil
}

func (m Manifest) validateServerURL() error {
	for _, other := range []named{{"model", m.Model}, {"server", m.Server}, {"requirements", m.Requirements}} {
		if other.name != "" {
			return fmt.Errorf("%w: %s is for a server that the instance starts, and server_url is of one that runs already; a bundle has one or the other", ErrManifest, other.key)
		}
	}
	if m.ModelName == "" && m.Name == "" {
		return fmt.Errorf("%w: model_name is missing; write what the server at server_url calls the model", ErrManifest)
	}
	u, err := url.Parse(m.ServerURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%w: server_url is %q; write where the server's REST API is, as http://10.0.0.7:8501", ErrManifest, m.ServerURL)
	}
	return nil
}

// wantsDirectory says what the engine's directory has.
func (m Manifest) wantsDirectory() string {
	switch m.Engine {
	case EngineTriton:
		return "has " + tritonConfig + " and the directory 1, as a model in Triton's repository"
	case EngineMLServer:
		return "has " + mlserverSettings
	}
	return "has " + savedModelFile + ", or a directory with it for each version"
}

// checkUpstreamModel looks for what tells the engine's models.
func (b *Bundle) checkUpstreamModel(inside *os.Root, isDir bool) error {
	if !isDir {
		return fmt.Errorf("%q in the bundle is not a directory; %s wants one that %s", b.Model, b.Engine, b.wantsDirectory())
	}
	has := func(name string) bool {
		_, err := inside.Stat(filepath.Join(b.Model, name))
		return err == nil
	}
	version := Version(inside.FS(), filepath.ToSlash(filepath.Clean(b.Model)))
	switch b.Engine {
	case EngineTriton:
		if version == "" {
			return fmt.Errorf("the directory %q has no directory of a version; put the model's file into %q, as Triton's repository has it", b.Model, filepath.Join(b.Model, "1"))
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
	return fmt.Errorf("the directory %q is no model of %s; it wants one that %s", b.Model, b.Engine, b.wantsDirectory())
}

// Version is the name of the latest version's directory in a model's, the empty
// string if there is none: versions are whole numbers from 1 on.
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

// Served is what the model server calls the model: model_name, or the manifest's
// name with what cannot stand in a path made a hyphen.
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
