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

// record is what a prepared bundle's directory is told by.
const record engine.Record = "python.json"

// Prepared is a bundle with all that it needs to run on this machine. It does not
// change when the bundle is replaced.
type Prepared struct {
	// Dir holds a copy of the bundle's files.
	Dir string `json:"dir"`
	// Engine, Model and Handler are the manifest's.
	Engine  string `json:"engine"`
	Model   string `json:"model"`
	Handler string `json:"handler"`
	// Environment names the virtual environment, Python is its program.
	Environment string `json:"environment"`
	Python      string `json:"python"`
	// Warm are the modules that a warm process imports; one with @ before it is the
	// name of a distribution.
	Warm []string `json:"warm"`
}

// IsManifest reports whether a model's file is the manifest of a bundle that runs
// in Python.
func IsManifest(file string) bool { return filepath.Base(file) == bundle.ManifestFile }

// IsPrepared reports whether a directory is one that [Prepare] made.
func IsPrepared(dir string) bool { return record.In(dir) }

// Read reads what [Prepare] made.
func Read(dir string) (Prepared, error) {
	var p Prepared
	err := record.Read(dir, &p)
	return p, err
}

// open opens the bundle that has a manifest.
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

// Hash identifies a bundle's content: every file, and the environment.
func Hash(manifest string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	env, err := environment.Find(context.Background(), b.Engine, requirements(b))
	if err != nil {
		return "", err
	}
	return engine.HashPrepared(b.Dir, "python "+env.Hash)
}

// Prepare makes a bundle's environment and keeps a copy of its files below cache,
// once; it returns the directory. Where all is there already, as in an image, the
// bundle is used where it is.
func Prepare(ctx context.Context, manifest, cache string) (dir string, err error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	if program := os.Getenv(environment.ReadyEnv); program != "" {
		return inPlace(b, program, cache)
	}
	env, err := environment.Ensure(ctx, b.Engine, requirements(b))
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

// requirements is the file's path, "" if there is none.
func requirements(b *bundle.Bundle) string {
	if b.Requirements == "" {
		return ""
	}
	return filepath.Join(b.Dir, b.Requirements)
}

// warmModules are what is worth importing before an instance starts.
func warmModules(b *bundle.Bundle) []string {
	modules := []string{"numpy"}
	if b.Engine == bundle.EngineTensorFlow {
		modules = append(modules, "tensorflow", "keras")
	}
	text, err := os.ReadFile(requirements(b))
	if err != nil {
		return modules // There are none.
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
