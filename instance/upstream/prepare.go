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

// record marks a prepared bundle's directory.
const record engine.Record = "upstream.json"

// Prepared is a bundle that is ready for its server on this machine. It does not change
// when the bundle is replaced.
type Prepared struct {
	// Dir holds a copy of the bundle's files.
	Dir string `json:"dir"`
	// Engine, Model, Server, ServerURL and Name are the manifest's. Name is the model's
	// name at the server.
	Engine    string `json:"engine"`
	Model     string `json:"model,omitempty"`
	Server    string `json:"server,omitempty"`
	ServerURL string `json:"server_url,omitempty"`
	Name      string `json:"name"`
	// Python is the interpreter of the server's environment, "" if the server needs none.
	Python string `json:"python,omitempty"`
}

// IsPrepared reports whether [Prepare] made this directory.
func IsPrepared(dir string) bool { return record.In(dir) }

// Read reads the record in a directory that [Prepare] made.
func Read(dir string) (Prepared, error) {
	var p Prepared
	err := record.Read(dir, &p)
	return p, err
}

// IsManifest reports whether a model's file is the manifest of a bundle for a model
// server.
func IsManifest(file string) bool {
	_, err := open(file)
	return err == nil
}

// open opens the bundle with this manifest file.
func open(manifest string) (*bundle.Bundle, error) {
	if filepath.Base(manifest) != bundle.ManifestFile {
		return nil, fmt.Errorf("%s is not a %s", manifest, bundle.ManifestFile)
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

// Check checks the files that the manifest names and the model's settings. It installs
// and runs nothing.
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

// Hash returns a hash of all the bundle's files and of the server's environment.
func Hash(manifest string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	return hash(b)
}

func hash(b *bundle.Bundle) (string, error) {
	beside := "upstream " + b.Engine
	if needsPython(b) {
		env, err := environment.Find(context.Background(), b.Engine, b.RequirementsFile())
		if err != nil {
			return "", err
		}
		beside += " " + env.Hash
	}
	return engine.HashPrepared(b.Dir, beside)
}

// needsPython reports whether pip must install an environment for the server: for its
// model's imports, or because the server is not on this machine.
func needsPython(b *bundle.Bundle) bool {
	k, err := kindOf(b.Engine)
	if err != nil || !k.pip() || b.ServerURL != "" {
		return false
	}
	if b.Requirements != "" {
		return true
	}
	_, err = k.find(searchPath(""), "")
	return isOwnProgram(k, strings.Fields(b.Server)) && err != nil
}

// isOwnProgram reports whether a command is empty or names the server's own program without
// a path, so that find must locate it.
func isOwnProgram(k kind, command []string) bool { return len(command) == 0 || command[0] == k.name() }

// searchPath returns the directories to search for programs: that of the Python
// interpreter, if any, then those of PATH.
func searchPath(python string) []string {
	path := filepath.SplitList(os.Getenv("PATH"))
	if python != "" {
		path = append([]string{filepath.Dir(python)}, path...)
	}
	return path
}

// packagesOf returns the directory of the packages in an interpreter's environment, "" if
// it is not known.
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

// Prepare installs the environment of a bundle's server and keeps a copy of the bundle's
// files below cache. It does so once and returns the directory.
func Prepare(ctx context.Context, manifest, cache string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	python := ""
	if needsPython(b) {
		env, err := environment.Ensure(ctx, b.Engine, b.RequirementsFile())
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

// command returns the program that serves, with its own arguments and environment.
func (p Prepared) command() (program, error) {
	k, err := kindOf(p.Engine)
	if err != nil {
		return program{}, err
	}
	words, path := strings.Fields(p.Server), searchPath(p.Python)
	switch {
	case isOwnProgram(k, words):
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
			return program{}, fmt.Errorf("server: %s is not on PATH; install it, or give its full path", words[0])
		}
		words[0] = file
	}
	return program{argv: words}, nil
}
