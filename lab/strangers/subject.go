package strangers

import (
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/e2e/graphs"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// subject is a model to serve, and what requests to it look like.
type subject struct {
	name string
	// file is the model's. Its weights may be in files beside it, whose names begin with its.
	file   string
	inputs []graphs.Input
	// sizes are the free sizes of requests, one list each.
	sizes   [][]int64
	batched bool
	// shapes is the annotation of that name, "" for none.
	shapes string
	// random says that it is one of [graphs.Make].
	random bool
	// bytes is the size of its files.
	bytes int64
}

// name is the file's name with its package's: rapidocr/PP-OCRv6_det_small.
func (f shipped) name() string {
	first, _, _ := strings.Cut(f.file, "/")
	return first + "/" + strings.TrimSuffix(path.Base(f.file), ".onnx")
}

// subject reads the model of an unpacked wheel. hash is that of its content.
func (f shipped) subject(dir string) (s *subject, hash string, err error) {
	file := filepath.Join(dir, filepath.FromSlash(f.file))
	if hash, err = hashOf(file); err != nil {
		return nil, "", err
	}
	m, err := model.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	s = &subject{name: f.name(), file: file, sizes: f.sizes}
	if len(s.sizes) == 0 {
		s.sizes = [][]int64{nil}
	}
	given, err := f.parse()
	if err != nil {
		return nil, "", err
	}
	initial := map[string]bool{}
	for _, t := range m.Proto().GetGraph().GetInitializer() {
		initial[t.GetName()] = true
	}
	for _, v := range m.Proto().GetGraph().GetInput() {
		if initial[v.GetName()] {
			continue // A weight that old models list as an input, too.
		}
		in, err := f.input(v, given)
		if err != nil {
			return nil, "", err
		}
		s.inputs = append(s.inputs, in)
		s.batched = s.batched || slices.Contains(in.Shape, graphs.Rows)
	}
	if f.annotate {
		s.shapes = f.annotation(given)
	}
	s.bytes, err = sizeOf(file)
	return s, hash, err
}

// input says what requests send as the value v.
func (f shipped) input(v *onnxpb.ValueInfoProto, given map[string][]int64) (graphs.Input, error) {
	of := v.GetType().GetTensorType()
	in := f.inputs[v.GetName()]
	in.Name, in.Type = v.GetName(), graphs.TypeOf(of.GetElemType())
	if in.Type == "" {
		return in, fmt.Errorf("the input %q has ONNX's type %d, which requests cannot have", in.Name, of.GetElemType())
	}
	if shape, ok := given[in.Name]; ok {
		in.Shape = shape
		return in, nil
	}
	in.Shape = []int64{}
	for i, d := range of.GetShape().GetDim() {
		switch size := d.GetDimValue(); {
		case size > 0:
			in.Shape = append(in.Shape, size)
		case i == 0:
			in.Shape = append(in.Shape, graphs.Rows)
		default:
			return in, fmt.Errorf("dimension %d of the input %q is free: give its shape in lab/strangers/packages.go", i, in.Name)
		}
	}
	return in, nil
}

// parse reads the shapes.
func (f shipped) parse() (map[string][]int64, error) {
	shapes, letters := map[string][]int64{}, []string{}
	if f.shapes == "" {
		return shapes, nil
	}
	for one := range strings.SplitSeq(f.shapes, ",") {
		name, sizes, _ := strings.Cut(one, ":")
		for size := range strings.SplitSeq(sizes, "x") {
			n, err := strconv.ParseInt(size, 10, 64)
			switch at := slices.Index(letters, size); {
			case err == nil:
			case size == "n":
				n = graphs.Rows
			case at >= 0:
				n = graphs.Free(at)
			default:
				n = graphs.Free(len(letters))
				letters = append(letters, size)
			}
			shapes[name] = append(shapes[name], n)
		}
	}
	for _, sizes := range f.sizes {
		if len(sizes) != len(letters) {
			return nil, fmt.Errorf("%q has %d free sizes, and not the %d of %v", f.shapes, len(letters), len(sizes), sizes)
		}
	}
	return shapes, nil
}

// annotation is the value of com.openfaas.infer.shapes: one row of the first sizes.
func (f shipped) annotation(shapes map[string][]int64) string {
	out := tensor.Shapes{}
	for name, shape := range shapes {
		for _, size := range shape {
			switch {
			case size == graphs.Rows:
				size = 1
			case size < graphs.Rows:
				size = f.sizes[0][-2-size]
			}
			out[name] = append(out[name], size)
		}
	}
	return out.String()
}

// randomSubject writes a random graph into dir.
func randomSubject(dir string, seed uint64, i int) (*subject, error) {
	g := graphs.Make(seed, i)
	m, err := model.FromProto(g.Model)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.Name, err)
	}
	s := &subject{name: g.Name, file: filepath.Join(dir, g.Name+".onnx"), inputs: g.Inputs, sizes: g.Sizes, batched: g.Batched, random: true}
	if err := m.WriteFile(s.file); err != nil {
		return nil, err
	}
	s.bytes, err = sizeOf(s.file)
	return s, err
}

// files lists the model's files: its own, and those whose names begin with its.
func files(file string) ([]string, error) { return filepath.Glob(file + "*") }

func sizeOf(file string) (sum int64, err error) {
	all, err := files(file)
	for _, one := range all {
		var info fs.FileInfo
		if info, err = os.Stat(one); err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, err
}

// scales are those of the requests' values, so that neighbours in a batch differ.
var scales = []float64{1, 50, 0.02, 5}

// requests makes a model's requests: of one row in every scale and size, and of three rows
// where the model takes them.
func (s *subject) requests(seed uint64) [][]tensor.Tensor {
	own := fnv.New64a()
	own.Write([]byte(s.name))
	rng := rand.New(rand.NewPCG(seed, own.Sum64()))
	var all [][]tensor.Tensor
	for i, scale := range scales {
		all = append(all, graphs.Request(s.inputs, 1, s.sizes[i%len(s.sizes)], scale, rng))
	}
	if s.batched {
		for i, scale := range scales[:2] {
			all = append(all, graphs.Request(s.inputs, 3, s.sizes[i%len(s.sizes)], scale, rng))
		}
	}
	return all
}
