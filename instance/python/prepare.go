package python

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// record marks a prepared bundle's directory.
const record engine.Record = "python.json"

// Prepared is a bundle that is ready to run on this machine. It does not change when the
// bundle is replaced.
type Prepared struct {
	// Dir holds the bundle's files.
	Dir string `json:"dir"`
	// Engine, Model and Handler are the manifest's.
	Engine  string `json:"engine"`
	Model   string `json:"model"`
	Handler string `json:"handler"`
	// Environment is the name of the virtual environment, Python the path of its
	// interpreter.
	Environment string `json:"environment"`
	Python      string `json:"python"`
	// Warm lists the modules that a warm process imports. An entry that begins with @ is
	// the name of a distribution.
	Warm []string `json:"warm"`
}

// IsManifest reports whether a model's file is the manifest of a bundle that runs
// in Python.
func IsManifest(file string) bool { return filepath.Base(file) == bundle.ManifestFile }

// IsPrepared reports whether [Prepare] made this directory.
func IsPrepared(dir string) bool { return record.In(dir) }

// Read reads the record in a directory that [Prepare] made.
func Read(dir string) (Prepared, error) {
	var p Prepared
	err := record.Read(dir, &p)
	return p, err
}

// open opens the bundle with this manifest file.
func open(manifest string) (*bundle.Bundle, error) {
	b, err := bundle.OpenDir(filepath.Dir(manifest))
	if err != nil {
		return nil, err
	}
	if !b.InPython() {
		return nil, fmt.Errorf("%s: the engine %q does not run in Python", manifest, b.Engine)
	}
	return b, nil
}

// Hash returns a hash of all the bundle's files and of its environment.
func Hash(manifest string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	env, err := environment.Find(context.Background(), b.Engine, b.RequirementsFile())
	if err != nil {
		return "", err
	}
	return engine.HashPrepared(b.Dir, "python "+env.Hash)
}

// Prepare installs a bundle's environment and keeps a copy of its files below cache. It
// does so once and returns the directory. If [environment.ReadyEnv] is set, as in an
// image, it installs and copies nothing.
func Prepare(ctx context.Context, manifest, cache string) (dir string, err error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	if program := os.Getenv(environment.ReadyEnv); program != "" {
		return inPlace(b, program, cache)
	}
	env, err := environment.Ensure(ctx, b.Engine, b.RequirementsFile())
	if err != nil {
		return "", err
	}
	hash, err := Hash(manifest)
	if err != nil {
		return "", err
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "python-"+hash[:32])
	return dir, record.Keep(b.Dir, dir, func(kept string) any {
		return Prepared{
			Dir: kept, Engine: b.Engine, Model: b.Model, Handler: b.Handler,
			Environment: env.Hash, Python: env.Python, Warm: warmModules(b),
		}
	})
}

// warmModules returns the modules that a warm process imports before instances start.
func warmModules(b *bundle.Bundle) []string {
	modules := []string{"numpy"}
	if b.Engine == bundle.EngineTensorFlow {
		modules = append(modules, "tensorflow", "keras")
	}
	text, err := os.ReadFile(b.RequirementsFile())
	if err != nil {
		return modules // The bundle has no requirements.
	}
	for line := range strings.Lines(string(text)) {
		end := strings.IndexFunc(line, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
		})
		if end < 0 {
			end = len(line)
		}
		if name := line[:end]; name != "" && name[0] != '-' {
			modules = append(modules, "@"+name)
		}
	}
	return modules
}
