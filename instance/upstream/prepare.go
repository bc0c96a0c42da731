package upstream

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
const record engine.Record = "upstream.json"

// Prepared is a bundle with all that its server needs on this machine. It does not
// change when the bundle is replaced.
type Prepared struct {
	// Dir holds a copy of the bundle's files.
	Dir string `json:"dir"`
	// Engine, Model, Server, ServerURL and Name are the manifest's, Name what the
	// server calls the model.
	Engine    string `json:"engine"`
	Model     string `json:"model,omitempty"`
	Server    string `json:"server,omitempty"`
	ServerURL string `json:"server_url,omitempty"`
	Name      string `json:"name"`
	// Python is the program of the environment that was made for the server, "" if
	// it needs none.
	Python string `json:"python,omitempty"`
}

// IsPrepared reports whether a directory is one that [Prepare] made.
func IsPrepared(dir string) bool { return record.In(dir) }

// Read reads what [Prepare] made.
func Read(dir string) (Prepared, error) {
	var p Prepared
	err := record.Read(dir, &p)
	return p, err
}

// IsManifest reports whether a model's file is the manifest of a bundle that an
// upstream server runs.
func IsManifest(file string) bool {
	_, err := open(file)
	return err == nil
}

// open opens the bundle that has a manifest.
func open(manifest string) (*bundle.Bundle, error) {
	if filepath.Base(manifest) != bundle.ManifestFile {
		return nil, fmt.Errorf("%s is no %s", manifest, bundle.ManifestFile)
	}
	b, err := bundle.OpenDir(filepath.Dir(manifest))
	if err != nil {
		return nil, err
	}
	if !b.Upstream() {
		return nil, fmt.Errorf("%s: the engine %q is no model server", manifest, b.Engine)
	}
	return b, nil
}

// Check looks at a bundle without installing or running any of it: the files that
// the manifest names, and whether the settings of the model can be read.
func Check(manifest string) (err error) {
	b, err := open(manifest)
	if err != nil || b.ServerURL != "" {
		return err
	}
	k, err := kindOf(b.Engine)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "faas-infer-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	model, err := filepath.Abs(filepath.Join(b.Dir, b.Model))
	if err != nil {
		return err
	}
	return k.layOut(dir, serving{Model: model, Name: b.Served(), Batch: 1, Threads: 1})
}

// Hash identifies a bundle's content: every file, and the environment that the
// server is given.
func Hash(manifest string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	return hash(b)
}

func hash(b *bundle.Bundle) (string, error) {
	beside := "upstream " + b.Engine
	if wantsPython(b) {
		env, err := environment.Find(context.Background(), b.Engine, requirements(b))
		if err != nil {
			return "", err
		}
		beside += " " + env.Hash
	}
	return engine.HashPrepared(b.Dir, beside)
}

// wantsPython reports whether the server needs an environment that pip makes: for
// what its model imports, or because it is not on this machine.
func wantsPython(b *bundle.Bundle) bool {
	k, err := kindOf(b.Engine)
	if err != nil || !k.pip() || b.ServerURL != "" {
		return false
	}
	if b.Requirements != "" {
		return true
	}
	_, err = k.find(searchPath(""), "")
	return own(k, strings.Fields(b.Server)) && err != nil
}

// own reports whether a command is the server's own program, wherever that is.
func own(k kind, command []string) bool { return len(command) == 0 || command[0] == k.name() }

// requirements is the file's path, "" if there is none.
func requirements(b *bundle.Bundle) string {
	if b.Requirements == "" {
		return ""
	}
	return filepath.Join(b.Dir, b.Requirements)
}

// searchPath are the directories where programs are looked for, those of a Python's
// environment first.
func searchPath(python string) []string {
	path := filepath.SplitList(os.Getenv("PATH"))
	if python != "" {
		path = append([]string{filepath.Dir(python)}, path...)
	}
	return path
}

// packagesOf is where a Python's environment has its packages, "" if that is not
// known.
func packagesOf(python string) string {
	if python == "" {
		return ""
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", "python3*", "site-packages"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// Prepare makes the environment that a bundle's server needs and keeps a copy of its
// files below cache, once; it returns the directory.
func Prepare(ctx context.Context, manifest, cache string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	python := ""
	if wantsPython(b) {
		env, err := environment.Ensure(ctx, b.Engine, requirements(b))
		if err != nil {
			return "", err
		}
		python = env.Python
	}
	sum, err := hash(b)
	if err != nil {
		return "", err
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "upstream-"+sum[:32])
	return dir, record.Keep(b.Dir, dir, func(kept string) any {
		return Prepared{
			Dir: kept, Engine: b.Engine, Model: b.Model, Server: b.Server, ServerURL: b.ServerURL, Name: b.Served(), Python: python,
		}
	})
}

// command is the program that serves, with its own arguments and environment.
func (p Prepared) command() (program, error) {
	k, err := kindOf(p.Engine)
	if err != nil {
		return program{}, err
	}
	words, path := strings.Fields(p.Server), searchPath(p.Python)
	switch {
	case own(k, words):
		found, err := k.find(path, packagesOf(p.Python))
		if err == nil && len(words) > 0 {
			found.argv = append(found.argv, words[1:]...)
		}
		return found, err
	case filepath.IsAbs(words[0]):
	case strings.Contains(words[0], "/"):
		words[0] = filepath.Join(p.Dir, words[0])
	default:
		file, ok := lookUp(words[0], path)
		if !ok {
			return program{}, fmt.Errorf("server: there is no %s on PATH", words[0])
		}
		words[0] = file
	}
	return program{argv: words}, nil
}
