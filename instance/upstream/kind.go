package upstream

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// kind describes one make of model server.
type kind interface {
	// name returns the name of the server's program.
	name() string
	// find looks for the server's program in the directories of path, and in packages,
	// the packages of a Python environment, "" if there is none. The error says how to
	// get the server.
	find(path []string, packages string) (program, error)
	// pip reports whether pip can install the server.
	pip() bool
	// layOut writes the server's files, such as its settings, into an empty directory.
	layOut(dir string, s serving) error
	// flags returns the command's further flags and environment. dir is the directory
	// that layOut filled.
	flags(dir string, s serving, at ports) (flags []flag, env []string)
	// connect returns a client for a model at a server.
	connect(base, model string) Server
	// clear removes what a killed server leaves behind.
	clear(at ports)
}

// serving says how a server must serve a model.
type serving struct {
	// Model is the model's directory, Name its name at the server.
	Model, Name string
	// Batch is the maximum number of rows in a request, Threads the number of computing
	// threads.
	Batch, Threads int
	// Wheel is the wheel that contains the program, empty for an installed program.
	Wheel wheel
}

// ports are free ports of the loopback interface: http for the instance's requests, other
// for a server's second interface that cannot be switched off.
type ports struct{ http, other int }

// program is a command that serves, with the environment that it needs.
type program struct {
	argv, env []string
	wheel     wheel
}

// wheel locates the parts of a Python package that contains Triton: the backends, and the
// stub program that runs Python models. Triton does not find them there by itself.
type wheel struct{ backends, stub string }

// flag is one flag of a command, written name=value. A flag that the bundle's command
// already has takes precedence.
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

// lookUp finds an executable file in the directories.
func lookUp(name string, dirs []string) (string, bool) {
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, true
		}
	}
	return "", false
}

// link makes links in dir to all the entries of to, except those named in but.
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
