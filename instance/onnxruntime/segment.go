package onnxruntime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// ErrNoSegments is wrapped if a prepared model cannot be cut into segments. [ErrIndivisible] is wrapped as
// well if that is so of the model itself, and will not pass.
var (
	ErrNoSegments  = errors.New("the prepared model has no segments")
	ErrIndivisible = fmt.Errorf("%w, and will have none", ErrNoSegments)
)

// Segments is a prepared model's optimised graph, ready to be cut where a few tensors hold all
// that the rest needs. Its weights stay in the prepared directory's one file: all segments and
// the whole model map the same pages, and every result keeps its bits.
type Segments struct {
	prepared Prepared
	model    *cut.Model
}

// Segments reads the graph of a prepared model. Blocks end where at most that many tensors go
// on, as the layer profile of a model counts them. The error wraps [ErrNoSegments] without the files of
// FormatPacked: segments refer into its file of weights.
func (p Prepared) Segments(tensors int) (*Segments, error) {
	if err := p.divisible(); err != nil {
		return nil, err
	}
	file := p.GraphFile()
	switch {
	case file == "" && p.GraphError == "":
		return nil, fmt.Errorf("%w: its graph is missing in %s", ErrNoSegments, p.Dir)
	case file == "":
		return nil, fmt.Errorf("%w: it has no graph: %s", ErrIndivisible, p.GraphError)
	}
	m, err := model.ReadGraph(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSegments, err)
	}
	c, err := cut.New(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrIndivisible, err)
	}
	return &Segments{prepared: p, model: c.Separate(tensors)}, nil
}

// divisible returns an error that says why a prepared model has no segments.
func (p Prepared) divisible() error {
	_, written := p.LoadSeconds[FormatPacked]
	switch {
	case !p.AsInFile():
		return fmt.Errorf("%w: its batch is not in front of every tensor", ErrIndivisible)
	case p.divided().Format == FormatPacked:
		return nil
	case p.Format == FormatPlain:
		return fmt.Errorf("%w: it is still used as it was deployed, and is being prepared", ErrNoSegments)
	case written:
		return fmt.Errorf("%w: an earlier version prepared it, in ONNX Runtime's own format only; remove %s and prepare it again", ErrNoSegments, p.Dir)
	}
	return fmt.Errorf("%w: ONNX Runtime could only write it in its own format, whose weights segments cannot share", ErrIndivisible)
}

// Blocks is the number of blocks.
func (s *Segments) Blocks() int { return len(s.model.Layers()) }

// Segment is a part of a prepared model that is not open.
type Segment struct {
	// Inputs and Outputs are its tensors, in the order in which an engine takes and gives them.
	Inputs, Outputs []cut.Tensor
	// Weights is the size of its weights in bytes.
	Weights int64

	dir   string
	model []byte
	names signature
}

// Segment cuts out the blocks from first up to, but without, end. It reads no weights.
func (s *Segments) Segment(first, end int) (*Segment, error) {
	group, err := s.model.Group(first, end)
	if err != nil {
		return nil, err
	}
	parts, err := group.Cut(group.Whole())
	if err != nil {
		return nil, err
	}
	m, err := parts[0].Referring()
	if err != nil {
		return nil, err
	}
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		return nil, err
	}
	out := &Segment{
		Inputs: parts[0].Inputs(), Outputs: parts[0].Outputs(), Weights: parts[0].WeightBytes(),
		dir: s.prepared.Dir, model: file.Bytes(),
	}
	if out.names.Inputs, err = segmentInfos(out.Inputs); err != nil {
		return nil, err
	}
	out.names.Outputs, err = segmentInfos(out.Outputs)
	return out, err
}

// segmentInfos describes the tensors of a segment. Their first dimension is the batch; others
// that grow with it are open, too.
func segmentInfos(of []cut.Tensor) ([]tensor.Info, error) {
	infos := make([]tensor.Info, len(of))
	for i, t := range of {
		shape, further := t.Shape(1), t.Shape(2)
		if len(shape) == 0 || shape[0] != 1 || further[0] != 2 {
			return nil, fmt.Errorf("the tensor %q between blocks has no row for each of a batch", t.Name)
		}
		if t.Type().Size() == 0 {
			return nil, fmt.Errorf("the tensor %q between blocks has elements of different sizes", t.Name)
		}
		for d := range shape {
			if shape[d] != further[d] {
				shape[d] = -1
			}
		}
		infos[i] = tensor.Info{Name: t.As, Type: t.Type(), Shape: shape}
	}
	return infos, nil
}

// Closed returns an error unless all sizes but the number of rows are known: only then can the
// outputs' places be given before a run.
func (s *Segment) Closed() error {
	for _, infos := range [][]tensor.Info{s.names.Inputs, s.names.Outputs} {
		for _, t := range infos {
			if slices.Contains(t.Shape[1:], -1) {
				return fmt.Errorf("the tensor %q between its blocks has the open shape %v", t.Name, t.Shape)
			}
		}
	}
	return nil
}

// RowBytes are the sizes of a row of each output in bytes. The segment must be closed.
func (s *Segment) RowBytes() []int {
	out := make([]int, len(s.names.Outputs))
	for i, t := range s.names.Outputs {
		shape, _ := shapeFor(t, 1)
		out[i], _ = bytesOf(t.Type, shape) // Graph inference has found that it is no larger than memory.
	}
	return out
}

// Open loads the segment; of the options Threads and MemoryLimit count.
func (s *Segment) Open(o Options) (*Engine, error) {
	start := time.Now()
	if o.Threads < 1 {
		return nil, fmt.Errorf("threads is %d; it must be at least 1", o.Threads)
	}
	if err := limitMemory(o.MemoryLimit); err != nil {
		return nil, err
	}
	e, err := open(form{path: s.dir, level: ort.GraphOptimizationLevelDisableAll, signature: s.names, data: s.model}, o.Threads)
	if err != nil {
		return nil, fmt.Errorf("loading a segment of %s: %w", s.dir, err)
	}
	e.load = time.Since(start)
	return e, nil
}

// folder is the setting that says where the files of weights are of a model that is not read
// from a file.
func folder(dir string) setting {
	return setting{"session.model_external_initializers_file_folder_path", filepath.Clean(dir) + string(os.PathSeparator)}
}

// Graph is the segment's model as ONNX, with the places of its weights. It must not be changed.
func (s *Segment) Graph() []byte { return s.model }
