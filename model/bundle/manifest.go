package bundle

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	// ManifestFile is the manifest's name in a bundle.
	ManifestFile = "bundle.yaml"
	// maxManifest is the maximum number of bytes that are read of a manifest.
	maxManifest = 1 << 20
)

// The ways to pass requests to a program's process, by of-watchdog's names.
const (
	// ModeHTTP: the process is an HTTP server and gets requests forwarded.
	ModeHTTP = "http"
	// ModeStreaming: one process per request; its input and output are the bodies.
	// It is the default, as in of-watchdog.
	ModeStreaming = "streaming"
	// ModeClassic: one process per request, run as the classic watchdog does.
	ModeClassic = "classic"
	// modeSerializing is of-watchdog's name for ModeClassic.
	modeSerializing = "serializing"
)

// The networks that a program's process may see.
const (
	// NetworkHost is the machine's network. It is the default.
	NetworkHost = "host"
	// NetworkPrivate gives each instance its own network with only a loopback
	// interface, so several instances can listen on the same port.
	NetworkPrivate = "private"
)

// Manifest is the content of bundle.yaml. A bundle is a model, with Engine and
// Model, or a program, with Process.
type Manifest struct {
	// Name is for people. The default is the image's name, or the directory's.
	Name string `yaml:"name,omitempty"`
	// Engine runs the model: [EngineONNX], [EngineTensorFlow], [EnginePython], or a
	// third-party model server: [EngineTriton], [EngineTensorFlowServing],
	// [EngineMLServer].
	Engine string `yaml:"engine,omitempty"`
	// Model is the model's file, relative to the bundle. For TensorFlow and Python
	// it may be a directory, for a model server it must be one. Python may have
	// none.
	Model string `yaml:"model,omitempty"`
	// Models, instead of Model, lists ONNX models that answer the same requests. A
	// request's accuracy and latency decide which one answers.
	Models []ManifestModel `yaml:"models,omitempty"`
	// Validation is labelled data for ONNX models, nil if there is none.
	Validation *Validation `yaml:"validation,omitempty"`
	// Handler is the Python file with load and handle. Python needs one. TensorFlow
	// answers with the model's default signature without one. For ONNX it is a
	// program that runs before and after the model, or that program's Go file.
	Handler string `yaml:"handler,omitempty"`
	// Requirements is pip's file of the packages that the handler, or Python in a
	// model server, imports in addition to the engine's. It is optional.
	Requirements string `yaml:"requirements,omitempty"`
	// Server is the command that starts a model server, words separated by spaces.
	// The instance adds arguments for the address, the model and the batch size.
	// The default is the engine's own program.
	Server string `yaml:"server,omitempty"`
	// ServerURL is the address of a model server that runs already. The instance
	// then starts none.
	ServerURL string `yaml:"server_url,omitempty"`
	// ModelName is the model's name in the model server. [Manifest.Served] gives the
	// default.
	ModelName string `yaml:"model_name,omitempty"`
	// Text says how an ONNX model takes texts, nil for one that takes only tensors.
	Text *Text `yaml:"text,omitempty"`
	// Process is the program's command, words separated by spaces. It runs in the
	// bundle's directory. A deployment may replace it.
	Process string `yaml:"process,omitempty"`
	// Mode is how the process gets requests: [ModeHTTP], [ModeStreaming] or
	// [ModeClassic]. "serializing" means [ModeClassic].
	Mode string `yaml:"mode,omitempty"`
	// UpstreamURL is where the process listens in mode http. The default is
	// 127.0.0.1 at the port in $PORT.
	UpstreamURL string `yaml:"upstream_url,omitempty"`
	// Env is the process's environment. A deployment's variables override it.
	Env map[string]string `yaml:"env,omitempty"`
	// Network is [NetworkHost] or [NetworkPrivate].
	Network string `yaml:"network,omitempty"`
	// Annotations are defaults for a deployment's annotations, as
	// com.openfaas.slo.latency: 100ms. The provider interprets them.
	Annotations map[string]string `yaml:"annotations,omitempty"`
	// Description is for people. It is optional.
	Description string `yaml:"description,omitempty"`
}

// IsProgram reports whether the bundle is a program and not a model.
func (m Manifest) IsProgram() bool { return m.programField() != "" }

// programField names the first set field that only programs have, "" if there is
// none.
func (m Manifest) programField() string {
	switch {
	case m.Process != "":
		return "process"
	case m.Mode != "":
		return "mode"
	case m.UpstreamURL != "":
		return "upstream_url"
	case len(m.Env) > 0:
		return "env"
	case m.Network != "":
		return "network"
	}
	return ""
}

// Validate returns an error that names the first wrong field and wraps
// [ErrManifest].
func (m Manifest) Validate() error {
	program := m.programField()
	switch {
	case program == "" && m.Engine == "" && m.modelField() == "":
		return fmt.Errorf("%w: it names neither a model nor a program; write `engine: %s` and `model: model.onnx`, or `process: ./handler` and `mode: http`", ErrManifest, EngineONNX)
	case program != "" && (m.Engine != "" || m.modelField() != ""):
		return fmt.Errorf("%w: %s is for programs, %s is for models; remove one of them", ErrManifest, program, cmp.Or(m.modelField(), "engine"))
	case program != "":
		return m.validateProgram()
	}
	return m.validateModel()
}

func (m Manifest) validateProgram() error {
	words := strings.Fields(m.Process)
	switch {
	case len(words) == 0:
		return fmt.Errorf("%w: process is missing; write the command that answers requests, as `process: ./handler`", ErrManifest)
	case strings.ContainsRune(m.Process, 0):
		return fmt.Errorf("%w: process is %q; it must not contain NUL", ErrManifest, m.Process)
	case relative(words[0]) && !filepath.IsLocal(words[0]):
		return fmt.Errorf("%w: process is %q; it must begin with a file of the bundle, as ./handler, with a program's name or with an absolute path", ErrManifest, m.Process)
	case m.Network != "" && m.Network != NetworkHost && m.Network != NetworkPrivate:
		return fmt.Errorf("%w: network is %q; it must be %s or %s", ErrManifest, m.Network, NetworkHost, NetworkPrivate)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(m.Env[name], 0) {
			return fmt.Errorf("%w: env has %q; a variable needs a name without '=', and neither name nor value may contain NUL", ErrManifest, name)
		}
	}
	if !knownMode(m.Mode) {
		return fmt.Errorf("%w: mode is %q; it must be %s, %s or %s", ErrManifest, m.Mode, ModeHTTP, ModeStreaming, ModeClassic)
	}
	if mode := m.Env["mode"]; !knownMode(mode) {
		return fmt.Errorf("%w: env has mode %q; it must be %s, %s or %s", ErrManifest, mode, ModeHTTP, ModeStreaming, ModeClassic)
	}
	return m.validateUpstream()
}

func knownMode(mode string) bool {
	return slices.Contains([]string{"", ModeHTTP, ModeStreaming, ModeClassic, modeSerializing}, mode)
}

func (m Manifest) validateUpstream() error {
	if m.UpstreamURL == "" {
		return nil
	}
	if mode := m.mode(); mode != ModeHTTP {
		return fmt.Errorf("%w: upstream_url needs mode %s, and mode is %s; set `mode: %[2]s` or remove upstream_url", ErrManifest, ModeHTTP, mode)
	}
	u, err := url.Parse(m.UpstreamURL)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return fmt.Errorf("%w: upstream_url is %q; write where the process listens, as http://127.0.0.1:3000", ErrManifest, m.UpstreamURL)
	}
	return nil
}

// mode is the effective mode: the field mode, otherwise env's variable mode,
// otherwise streaming.
func (m Manifest) mode() string {
	for _, mode := range []string{m.Mode, m.Env["mode"]} {
		switch mode {
		case "":
		case modeSerializing:
			return ModeClassic
		default:
			return mode
		}
	}
	return ModeStreaming
}

// Environment is a program's environment: env, with the fields process, mode and
// upstream_url as the watchdog's variables fprocess, mode and upstream_url. A model
// has an empty one. The caller owns the map.
func (m Manifest) Environment() map[string]string {
	env := make(map[string]string, len(m.Env)+3)
	if !m.IsProgram() {
		return env
	}
	maps.Copy(env, m.Env)
	env["fprocess"], env["mode"] = m.Process, m.mode()
	if m.UpstreamURL != "" {
		env["upstream_url"] = m.UpstreamURL
	}
	return env
}

// ProcessFile is the file of the bundle that process runs, relative to the bundle.
// It is "" if process runs a program of the machine.
func (m Manifest) ProcessFile() string {
	if words := strings.Fields(m.Process); len(words) > 0 && relative(words[0]) {
		return filepath.Clean(words[0])
	}
	return ""
}

// relative reports whether a shell would look a command up in the working
// directory.
func relative(command string) bool {
	return strings.Contains(command, "/") && !filepath.IsAbs(command)
}

// ParseManifest decodes and validates a manifest. An unknown field is an error,
// which catches misspelt ones.
func ParseManifest(b []byte) (Manifest, error) {
	var m Manifest
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil && !errors.Is(err, io.EOF) {
		return Manifest{}, fmt.Errorf("%w: %w; the fields are name, description and annotations; for a model engine, model, handler and requirements; for ONNX models also models, validation and text; for a model server also server, server_url and model_name; for a program process, mode, upstream_url, env and network", ErrManifest, err)
	}
	if m.Engine == "" && m.Models != nil {
		m.Engine = EngineONNX // No other engine has several.
	}
	if err := m.validateText(); err != nil {
		return Manifest{}, err
	}
	if err := m.Validate(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}
