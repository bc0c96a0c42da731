package profile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/operator"
)

// Subject is a model that is measured or predicted.
type Subject struct {
	// Name is the zoo's name, or the file's name without its ending.
	Name, File string
	Model      *model.Model
	// Shapes are the usual sizes of its free dimensions, nil for the assumed ones. Sized is Model
	// with them.
	Shapes   tensor.Shapes
	Sized    *model.Model
	Prepared onnxruntime.Prepared
	// Optimised is the graph that the engine runs. It is nil for a model whose times do not
	// follow from its operators; Opaque then says why.
	Optimised *operator.Graph
	Opaque    error
	// sizes are its predicted times by size, nil if there are none.
	sizes *profiler.Sizes
}

// Original returns the graph before the engine's optimiser.
func (s *Subject) Original() (*operator.Graph, error) { return operator.Read(s.Sized) }

// Subjects opens the models that arguments name: files, or models of the zoo. It makes
// models of the zoo in a directory that Close removes.
type Subjects struct {
	// Shapes are sizes of free dimensions, nil for assumed ones.
	Shapes tensor.Shapes
	// maxRun is that of [TryFlags].
	maxRun   time.Duration
	dir      string
	prepared string
}

// NewSubjects returns Subjects that keep prepared models in a directory, "" for the usual
// one.
func NewSubjects(prepared string) (*Subjects, error) {
	cache, err := PreparedDir(prepared)
	if err != nil {
		return nil, err
	}
	return &Subjects{prepared: cache}, nil
}

// Close removes the models of the zoo that were made.
func (p *Subjects) Close() {
	if p.dir != "" {
		os.RemoveAll(p.dir)
	}
}

// make makes a model of the zoo. It makes the directory only when it is needed: the
// provider's children only read files, and must leave none behind when they are killed.
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

// SubjectTable returns the zoo's models that are in the paper's Table 1.
func SubjectTable() []string {
	var names []string
	for _, a := range zoo.All() {
		if a.TableSize != "" {
			names = append(names, a.Name)
		}
	}
	return names
}

// Get reads and prepares the model of one argument, and reads its optimised graph. The error
// is Opaque's for a model whose times do not follow from its operators.
func (p *Subjects) Get(argument string) (*Subject, error) {
	s, err := p.Prepare(argument)
	if err == nil {
		err = s.Opaque
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Prepare is Get, but also returns a subject that is opaque.
func (p *Subjects) Prepare(argument string) (*Subject, error) {
	s := &Subject{Name: strings.TrimSuffix(filepath.Base(argument), filepath.Ext(argument)), File: argument}
	if a, ok := zoo.Find(argument); ok {
		var err error
		s.Name = a.Name
		if s.File, err = p.make(a.Name); err != nil {
			return nil, err
		}
	} else if _, err := os.Stat(argument); errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s is neither a file nor a model of the zoo: give a file or one of %s", argument, strings.Join(zoo.Names(), ", "))
	}
	read := make(chan error, 1)
	go func() { // A large model takes a while.
		var err error
		s.Model, err = model.ReadFile(s.File)
		read <- err
	}()
	var err error
	s.Prepared, err = onnxruntime.Prepare(s.File, p.prepared, onnxruntime.PrepareOptions{Shapes: p.Shapes, MaxRun: p.maxRun})
	if err := cmp.Or(<-read, err); err != nil {
		return nil, err
	}
	s.Shapes = usualShapes(p.Shapes, s.Model, s.Prepared)
	if s.Sized, _, err = s.Model.Sized(s.Shapes); err != nil {
		return nil, fmt.Errorf("--shapes: %w", err)
	}
	s.Optimised, s.Opaque = optimised(s.Prepared, s.Shapes)
	if s.Opaque != nil {
		s.Optimised, s.Opaque = nil, fmt.Errorf("%s%s: %w", Unpredictable, argument, s.Opaque)
	}
	return s, nil
}

// optimised reads the graph that the engine runs.
func optimised(p onnxruntime.Prepared, shapes tensor.Shapes) (*operator.Graph, error) {
	switch {
	case p.Unbatched != "":
		return nil, fmt.Errorf("it takes one request an execution: %s", p.Unbatched)
	case p.GraphFile() == "":
		return nil, fmt.Errorf("the engine has not written its optimised graph: %s", p.GraphError)
	}
	if !p.AsInFile() {
		shapes = p.Inside()
	}
	return readOperators(p.GraphFile(), shapes)
}

// usualShapes are the sizes of a model's free dimensions: the given ones, or else those with which
// it ran, if they are not those that [model.Model.Sized] assumes.
func usualShapes(given tensor.Shapes, m *model.Model, p onnxruntime.Prepared) tensor.Shapes {
	if given != nil || !p.AsInFile() {
		return given
	}
	assumed, _, err := m.Sized(nil)
	if err != nil {
		return nil
	}
	for _, in := range assumed.Inputs() {
		if ran := p.Shapes[in.Name]; len(ran) == len(in.Shape) && len(ran) > 0 && !slices.Equal(ran[1:], in.Shape[1:]) {
			return p.Shapes
		}
	}
	return nil
}

// Begin reads the model in a file and prepares it without optimising it
// ([onnxruntime.Link]), which takes a moment. Optimised is then the original graph. content
// is the hash of the model.
func (p *Subjects) Begin(file, content string) (*Subject, error) {
	s := &Subject{Name: SubjectName(file), File: file}
	read := make(chan error, 1)
	go func() {
		var err error
		s.Model, err = model.ReadOutline(file)
		read <- err
	}()
	var err error
	s.Prepared, err = onnxruntime.Link(file, p.prepared, content, p.Shapes)
	if err := cmp.Or(<-read, err); err != nil {
		return nil, err
	}
	if s.Sized, _, err = s.Model.Sized(p.Shapes); err != nil {
		return nil, fmt.Errorf("--shapes: %w", err)
	}
	s.Optimised, err = s.Original()
	return s, err
}

// readOperators reads the operators of the model in a file with these sizes, without its weights.
func readOperators(file string, shapes tensor.Shapes) (*operator.Graph, error) {
	m, err := model.ReadGraph(file)
	if err != nil {
		return nil, err
	}
	return operator.ReadSized(m, shapes)
}

// Unpredictable begins the error for a model that must be measured as a whole.
const Unpredictable = "cannot be predicted: "

// PreparedDir returns dir, or the usual directory of prepared models if dir is "".
func PreparedDir(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("--prepared is missing, and there is no default: %w", err)
	}
	return filepath.Join(cache, "faas-infer", "prepared"), nil
}

// SubjectName returns a model's name from its file: the file's name without its ending, or
// the name of the directory of a bundle's manifest.
func SubjectName(file string) string {
	if engines.IsManifest(file) {
		if dir, err := filepath.Abs(filepath.Dir(file)); err == nil {
			return filepath.Base(dir)
		}
	}
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}
