package profile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Subject is a model whose operators are looked at.
type Subject struct {
	// SubjectName is the zoo's, or the file's without its ending.
	Name, File string
	Model      *model.Model
	Prepared   onnxruntime.Prepared
	// Optimised is the graph that the engine runs.
	Optimised *operator.Graph
}

// Original is the graph before the engine's optimiser.
func (s *Subject) Original() (*operator.Graph, error) { return operator.Read(s.Model) }

// Subjects are those that arguments name: files, or models of the zoo,
// which are made in a directory that Close removes. No argument means all of
// the zoo's that are in the paper's Table 1.
type Subjects struct {
	dir      string
	prepared string
}

// NewSubjects keeps prepared models in a directory, "" for the usual one.
func NewSubjects(prepared string) (*Subjects, error) {
	cache, err := PreparedDir(prepared)
	if err != nil {
		return nil, err
	}
	return &Subjects{prepared: cache}, nil
}

// Close removes what was made.
func (p *Subjects) Close() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// make makes a model of the zoo. The directory is made only now: the provider's children
// read files only, and leave none behind when they are killed.
func (p *Subjects) make(name string) (file string, err error) {
	if p.dir == "" {
		if p.dir, err = os.MkdirTemp("", "faas-infer-profile-"); err != nil {
			return "", err
		}
	}
	m, err := zoo.Make(name, 1)
	if err != nil {
		return "", err
	}
	file = filepath.Join(p.dir, name+".onnx")
	return file, m.WriteFile(file)
}

// SubjectTable are the zoo's models that the paper's Table 1 lists.
func SubjectTable() []string {
	var names []string
	for _, a := range zoo.All() {
		if a.TableSize != "" {
			names = append(names, a.Name)
		}
	}
	return names
}

// Get makes the model of one argument ready.
func (p *Subjects) Get(argument string) (*Subject, error) {
	s := &Subject{Name: strings.TrimSuffix(filepath.Base(argument), filepath.Ext(argument)), File: argument}
	if a, ok := zoo.Find(argument); ok {
		var err error
		s.Name = a.Name
		if s.File, err = p.make(a.Name); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(argument); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is neither a file nor a model of the zoo, which has %s", argument, strings.Join(zoo.Names(), ", "))
	}
	read := make(chan error, 1)
	go func() { // A large model takes a while.
		var err error
		s.Model, err = model.ReadFile(s.File)
		read <- err
	}()
	var err error
	s.Prepared, err = onnxruntime.Prepare(s.File, p.prepared)
	if err := cmp.Or(<-read, err); err != nil {
		return nil, err
	}
	if s.Prepared.GraphFile() == "" {
		return nil, fmt.Errorf("%s%s: the engine does not tell its optimised graph: %s", Unpredictable, argument, s.Prepared.GraphError)
	}
	if s.Optimised, err = readOperators(s.Prepared.GraphFile()); err != nil {
		return nil, fmt.Errorf("%s%s: %w", Unpredictable, argument, err)
	}
	return s, nil
}

// Begin makes the model in a file ready in a moment, as far as that goes ([onnxruntime.Link]):
// what is said of its operators is said of the graph as it stands. content is the hash of
// the model.
func (p *Subjects) Begin(file, content string) (*Subject, error) {
	s := &Subject{Name: SubjectName(file), File: file}
	read := make(chan error, 1)
	go func() {
		var err error
		s.Model, err = model.ReadFile(file)
		read <- err
	}()
	var err error
	s.Prepared, err = onnxruntime.Link(file, p.prepared, content)
	if err := cmp.Or(<-read, err); err != nil {
		return nil, err
	}
	s.Optimised, err = s.Original()
	return s, err
}

// readOperators takes the model in a file apart, without reading its weights.
func readOperators(file string) (*operator.Graph, error) {
	m, err := model.ReadGraph(file)
	if err != nil {
		return nil, err
	}
	return operator.Read(m)
}

// Unpredictable begins the error of a model that only a measurement can tell about.
const Unpredictable = "cannot be predicted: "

// PreparedDir is where prepared models are kept unless said otherwise.
func PreparedDir(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where to keep prepared models: %w; give --prepared", err)
	}
	return filepath.Join(cache, "faas-infer", "prepared"), nil
}

// SubjectName is what a model is called by its file: the file's name, or that of the
// directory of a bundle's manifest.
func SubjectName(file string) string {
	if engines.IsManifest(file) {
		if dir, err := filepath.Abs(filepath.Dir(file)); err == nil {
			return filepath.Base(dir)
		}
	}
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}
