package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// profiled is a model whose operators are looked at.
type profiled struct {
	// name is the zoo's, or the file's without its ending.
	name, file string
	model      *model.Model
	prepared   onnxruntime.Prepared
	// optimised is the graph that the engine runs.
	optimised *operator.Graph
}

// original is the graph before the engine's optimiser.
func (s *profiled) original() (*operator.Graph, error) { return operator.Read(s.model) }

// profiledModels are those that arguments name: files, or models of the zoo,
// which are made in a directory that close removes. No argument means all of
// the zoo's that are in the paper's Table 1.
type profiledModels struct {
	dir      string
	prepared string
}

func newProfiledModels(prepared string) (*profiledModels, error) {
	cache, err := preparedDir(prepared)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "faas-infer-profile-")
	if err != nil {
		return nil, err
	}
	return &profiledModels{dir: dir, prepared: cache}, nil
}

func (p *profiledModels) close() { os.RemoveAll(p.dir) }

// tableModels are the zoo's models that the paper's Table 1 lists.
func tableModels() []string {
	var names []string
	for _, a := range zoo.All() {
		if a.TableSize != "" {
			names = append(names, a.Name)
		}
	}
	return names
}

// get makes the model of one argument ready.
func (p *profiledModels) get(argument string) (*profiled, error) {
	s := &profiled{name: strings.TrimSuffix(filepath.Base(argument), filepath.Ext(argument)), file: argument}
	if a, ok := zoo.Find(argument); ok {
		m, err := zoo.Make(a.Name, 1)
		if err != nil {
			return nil, err
		}
		s.name, s.file = a.Name, filepath.Join(p.dir, a.Name+".onnx")
		if err := m.WriteFile(s.file); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(argument); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is neither a file nor a model of the zoo, which has %s", argument, strings.Join(zoo.Names(), ", "))
	}
	var err error
	if s.model, err = model.ReadFile(s.file); err != nil {
		return nil, err
	}
	if s.prepared, err = onnxruntime.Prepare(s.file, p.prepared); err != nil {
		return nil, err
	}
	if s.prepared.GraphFile() == "" {
		return nil, fmt.Errorf("%s%s: the engine does not tell its optimised graph: %s", unpredictable, argument, s.prepared.GraphError)
	}
	if s.optimised, err = readOperators(s.prepared.GraphFile()); err != nil {
		return nil, fmt.Errorf("%s%s: %w", unpredictable, argument, err)
	}
	return s, nil
}

// readOperators takes the model in a file apart, without reading its weights.
func readOperators(file string) (*operator.Graph, error) {
	m, err := model.ReadGraph(file)
	if err != nil {
		return nil, err
	}
	return operator.Read(m)
}
