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
	// maxManifest is the most bytes of a manifest.
	maxManifest = 1 << 20
)

// How a program's process is given requests: of-watchdog's names.
const (
	// ModeHTTP: the process is an HTTP server, to which requests are forwarded.
	ModeHTTP = "http"
	// ModeStreaming: a process for each request, its input and output being the
	// bodies. A program that names no mode has this one, as in of-watchdog.
	ModeStreaming = "streaming"
	// ModeClassic: a process for each request, as the classic watchdog runs it.
	ModeClassic = "classic"
	// modeSerializing is of-watchdog's name for what the classic watchdog does.
	modeSerializing = "serializing"
)

// Which network a program's process sees.
const (
	// NetworkHost is the machine's. It is the default.
	NetworkHost = "host"
	// NetworkPrivate is one of each instance's own with a loopback interface and
	// nothing else, so that several can listen on the same port.
	NetworkPrivate = "private"
)

// Manifest is what bundle.yaml says. A bundle is a model, with Engine and Model,
// or a program, with Process.
type Manifest struct {
	// Name is for people. Left out, it is the image's, or the directory's.
	Name string `yaml:"name,omitempty"`
	// Engine runs the model: [EngineONNX], [EngineTensorFlow], [EnginePython], or a
	// model server of others: [EngineTriton], [EngineTensorFlowServing],
	// [EngineMLServer].
	Engine string `yaml:"engine,omitempty"`
	// Model is the model's file, relative to the bundle; for TensorFlow and Python
	// it may be a directory, too, and Python may do without. A model server's is
	// a directory.
	Model string `yaml:"model,omitempty"`
	// Handler is the Python file with load and handle. Only TensorFlow may do
	// without: then the model's default signature answers. An ONNX model's is a
	// program that does what is to be done before and after it, or the Go file that
	// this was compiled from.
	Handler string `yaml:"handler,omitempty"`
	// Requirements is pip's file of what the handler, or Python in a model server,
	// imports beside what the engine brings; it may be left out.
	Requirements string `yaml:"requirements,omitempty"`
	// Server is the command that starts a model server: words with spaces between
	// them, to which the instance adds where to listen, the model and its batch
	// size. Left out, it is the engine's own program.
	Server string `yaml:"server,omitempty"`
	// ServerURL is where a model server runs already, which then is not started.
	ServerURL string `yaml:"server_url,omitempty"`
	// ModelName is what the model server calls the model; [Manifest.Served] tells it
	// where it is left out.
	ModelName string `yaml:"model_name,omitempty"`
	// Process is the program's command: words with spaces between them, run in
	// the bundle's directory. A deployment may say another.
	Process string `yaml:"process,omitempty"`
	// Mode is how the process is given requests: [ModeHTTP], [ModeStreaming] or
	// [ModeClassic]. "serializing" is read as the last.
	Mode string `yaml:"mode,omitempty"`
	// UpstreamURL is where the process listens in mode http. Left out, it is to
	// listen on 127.0.0.1 at the port that $PORT names.
	UpstreamURL string `yaml:"upstream_url,omitempty"`
	// Env is the process's environment; a deployment's variables come after it.
	Env map[string]string `yaml:"env,omitempty"`
	// Network is [NetworkHost] or [NetworkPrivate].
	Network string `yaml:"network,omitempty"`
	// Annotations are what a deployment of the bundle has where it does not say
	// otherwise, as com.openfaas.slo.latency: 100ms. The provider knows what they mean.
	Annotations map[string]string `yaml:"annotations,omitempty"`
	// Description is for people, and may be left out.
	Description string `yaml:"description,omitempty"`
}

// IsProgram reports whether this is a program, and no model.
func (m Manifest) IsProgram() bool { return m.programField() != "" }

// programField names a field that only programs have, the empty string if there
// is none.
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

// Validate returns an error that names the first field that is wrong. It wraps
// [ErrManifest].
func (m Manifest) Validate() error {
	program := m.programField()
	switch {
	case program == "" && m.Engine == "" && m.modelField() == "":
		return fmt.Errorf("%w: it names neither a model nor a program; write `engine: %s` and `model: model.onnx`, or `process: ./handler` and `mode: http`", ErrManifest, EngineONNX)
	case program != "" && (m.Engine != "" || m.modelField() != ""):
		return fmt.Errorf("%w: %s is for programs, %s is for models; a bundle is one or the other", ErrManifest, program, cmp.Or(m.modelField(), "engine"))
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
		return fmt.Errorf("%w: process is %q; a command has no NUL in it", ErrManifest, m.Process)
	case relative(words[0]) && !filepath.IsLocal(words[0]):
		return fmt.Errorf("%w: process is %q; it must begin with a file of the bundle, as ./handler, with a program's name or with an absolute path", ErrManifest, m.Process)
	case m.Network != "" && m.Network != NetworkHost && m.Network != NetworkPrivate:
		return fmt.Errorf("%w: network is %q; it is %s or %s", ErrManifest, m.Network, NetworkHost, NetworkPrivate)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(m.Env[name], 0) {
			return fmt.Errorf("%w: env has %q; a variable has a name without '=', and no NUL in it", ErrManifest, name)
		}
	}
	if !knownMode(m.Mode) {
		return fmt.Errorf("%w: mode is %q; it is %s, %s or %s", ErrManifest, m.Mode, ModeHTTP, ModeStreaming, ModeClassic)
	}
	if mode := m.Env["mode"]; !knownMode(mode) {
		return fmt.Errorf("%w: env has mode %q; it is %s, %s or %s", ErrManifest, mode, ModeHTTP, ModeStreaming, ModeClassic)
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
		return fmt.Errorf("%w: upstream_url is for mode %s, and mode is %s", ErrManifest, ModeHTTP, mode)
	}
	u, err := url.Parse(m.UpstreamURL)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return fmt.Errorf("%w: upstream_url is %q; write where the process listens, as http://127.0.0.1:3000", ErrManifest, m.UpstreamURL)
	}
	return nil
}

// mode is the one that counts.
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

// Environment is a program's environment: env, and over it what the fields
// process, mode and upstream_url say, as the watchdog's variables fprocess, mode
// and upstream_url. A model's is empty. The map is the caller's.
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

// ProcessFile is the file of the bundle that the process begins with, relative
// to the bundle; the empty string if it is a program of the machine.
func (m Manifest) ProcessFile() string {
	if words := strings.Fields(m.Process); len(words) > 0 && relative(words[0]) {
		return filepath.Clean(words[0])
	}
	return ""
}

// relative reports whether a command is looked up in the working directory, as
// a shell does it.
func relative(command string) bool {
	return strings.Contains(command, "/") && !filepath.IsAbs(command)
}

// ParseManifest decodes and validates a manifest. A field that it does not know
// is an error, so that a misspelt one is not overlooked.
func ParseManifest(b []byte) (Manifest, error) {
	var m Manifest
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil && !errors.Is(err, io.EOF) {
		return Manifest{}, fmt.Errorf("%w: %w; the fields are name, description and annotations, a model's engine, model, handler and requirements, a model server's server, server_url and model_name, and a program's process, mode, upstream_url, env and network", ErrManifest, err)
	}
	if err := m.Validate(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}
