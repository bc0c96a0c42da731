package upstream

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// kind is what there is to know of one make of model server.
type kind interface {
	// name is its program's.
	name() string
	// find looks for the server's own program: in the directories, PATH's, and in
	// the packages of a Python environment, "" if there is none. The error says
	// how to get it.
	find(path []string, packages string) (program, error)
	// pip reports whether pip can install the server.
	pip() bool
	// layOut writes what the server reads into an empty directory.
	layOut(dir string, s serving) error
	// flags are what the command is given beside, with the directory that was laid
	// out, and env what its environment has.
	flags(dir string, s serving, at ports) (flags []flag, env []string)
	// connect returns the model at a server.
	connect(base, model string) Server
	// clear removes what a server leaves behind that was killed.
	clear(at ports)
}

// serving is how a server is to serve a model.
type serving struct {
	// Model is the model's directory, Name what it is called.
	Model, Name string
	// Batch is the most rows that it is given at once, Threads how many compute.
	Batch, Threads int
	// Wheel is what the program was found with, the empty one for an installed one.
	Wheel wheel
}

// ports are free ones of the loopback interface: the server's for us, and one for
// what cannot be switched off.
type ports struct{ http, other int }

// program is one that was found, with what it needs.
type program struct {
	argv, env []string
	wheel     wheel
}

// wheel is a package of Triton's for Python, of which backends and the program that
// runs Python's models are in places where Triton does not look.
type wheel struct{ backends, stub string }

// flag is one of a command's, written name=value; a command that has it keeps its
// own.
type flag struct{ name, value string }

func kindOf(engine string) (kind, error) {
	switch engine {
	case bundle.EngineTriton:
		return triton{}, nil
	case bundle.EngineTensorFlowServing:
		return tensorFlowServing{}, nil
	case bundle.EngineMLServer:
		return mlserver{}, nil
	}
	return nil, fmt.Errorf("the engine %q is no model server", engine)
}

// lookUp finds an executable file in directories.
func lookUp(name string, dirs []string) (string, bool) {
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, true
		}
	}
	return "", false
}

// link makes links in a directory to all that another one has, but for some names.
func link(dir, to string, but ...string) error {
	entries, err := os.ReadDir(to)
	if err != nil {
		return err
	}
	without := map[string]bool{}
	for _, name := range but {
		without[name] = true
	}
	for _, e := range entries {
		if without[e.Name()] {
			continue
		}
		if err := os.Symlink(filepath.Join(to, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
