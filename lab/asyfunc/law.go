package asyfunc

import (
	"fmt"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow/graph"
)

// Law gives the times that the paper does not print, for a node of its Table 1. An operator
// with M multiply-adds and I elements of input for each row, and W elements of weights, takes
// on c cores for b rows
//
//	Fixed + (b·M/Rate + 4·(2·b·I + W)/Bandwidth)·(1 − Parallel + Parallel/c)
//
// An input counts twice, because the output is about as large.
type Law struct {
	// Fixed is the time of an operator without work in ms.
	Fixed float64 `json:"fixed_ms"`
	// Rate is a core's rate in multiply-adds per ms, Bandwidth its rate in bytes per ms.
	Rate      float64 `json:"macs_per_ms"`
	Bandwidth float64 `json:"bytes_per_ms"`
	// Parallel is the part of the work that cores share (Amdahl).
	Parallel float64 `json:"parallel"`
	// LoadFixed and LoadPerMB are the time to load a part into an empty instance: in ms, and
	// in ms for each MB (10⁶ bytes) of weights.
	LoadFixed float64 `json:"load_fixed_ms"`
	LoadPerMB float64 `json:"load_ms_per_mb"`
	// Start is the time in ms to start an instance without a model.
	Start float64 `json:"start_ms"`
	// Own is the memory of an instance without a model in bytes.
	Own int64 `json:"own"`
}

// DefaultLaw is the law for a Xeon Platinum 8269CY at 2.5 GHz under PyTorch. A core reaches
// 40 GMAC/s, half of what two AVX-512 units do; 10 GB/s; and 20 µs an operator, as PyTorch
// takes to call one. 95 % of the work is parallel. The load time goes through the two points of
// §1: 131 MB of YOLOv8x in 100 ms, 6 MB in 11 ms. The paper does not say how long a container and
// the import of PyTorch take before that; here it is 2 s.
func DefaultLaw() Law {
	const perMB = (100.0 - 11) / (131 - 6)
	return Law{
		Fixed: 0.02, Rate: 40e6, Bandwidth: 10e6, Parallel: 0.95,
		LoadFixed: 100 - 131*perMB, LoadPerMB: perMB, Start: 2000, Own: 64 << 20,
	}
}

// time is an operator's time in ms.
func (l Law) time(w cut.Work, rows, cores int) float64 {
	bytes := 4 * (2*float64(rows)*float64(w.In) + float64(w.Weights))
	work := float64(rows)*float64(w.FLOPs)/l.Rate + bytes/l.Bandwidth
	return l.Fixed + work*(1-l.Parallel+l.Parallel/float64(cores))
}

// load is the time in ms to load so many bytes of weights.
func (l Law) load(weights int64) float64 { return l.LoadPerMB * float64(weights) / 1e6 }

// maxRows is the largest batch with times of its own: a pair's.
const maxRows = 2 * maxBatch

// make builds a model of the zoo by the law.
func (l Law) make(name string) (*shadow.Model, error) {
	made, err := zoo.Make(name, 1)
	if err != nil {
		return nil, err
	}
	c, err := cut.New(made)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	layers := c.Layers()
	whole, err := c.Group(0, len(layers))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	parts, err := whole.Cut(whole.Whole())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	work := make(map[string]cut.Work)
	for _, w := range parts[0].Work(1) {
		work[w.Name] = w
	}
	o := graph.Options{
		Time: func(operator string, rows, threads int) float64 { return l.time(work[operator], rows, threads) },
		Load: func(weights int64, _ int) float64 { return l.load(weights) },
		Own:  l.Own,
	}
	for b := 1; b <= maxRows; b++ {
		o.Rows = append(o.Rows, b)
	}
	for n := 1; n <= maxCores; n++ {
		o.Threads = append(o.Threads, n)
	}
	g, err := graph.New(name, c, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return g.Model, nil
}

// Subject is a model of Table 2.
type Subject struct {
	// Name is the paper's, Zoo ours: the table's VGG16 and ResNet50 are VGG-19 and
	// ResNet-101.
	Name, Zoo string
	// MB and Layers are the table's.
	MB, Layers int
}

// Subjects are the models of Table 2.
func Subjects() []Subject {
	return []Subject{
		{"InceptionV3", "inception-v3", 92, 193},
		{"EfficientNet-b5", "efficientnet-b5", 117, 539},
		{"YOLOv8x", "yolov8x", 131, 305},
		{"SSD300", "ssd300", 136, 65},
		{"ResNet50", "resnet-101", 171, 245},
		{"VGG16", "vgg-19", 548, 45},
	}
}

// Models makes models of the zoo by the law.
func (l Law) Models(names []string) ([]*shadow.Model, error) {
	models := make([]*shadow.Model, len(names))
	for i, name := range names {
		var err error
		if models[i], err = l.make(name); err != nil {
			return nil, err
		}
	}
	return models, nil
}
