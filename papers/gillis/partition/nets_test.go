package partition

import (
	"fmt"
	"math/rand/v2"
)

// convLayer is a convolution with its ReLU, a pooling or a dense layer of a test model.
type convLayer struct {
	kind                  string
	in, out, kernel, step int
	// side is the height and width of the input. A dense layer has 1.
	side int
}

func (c convLayer) outSide() int {
	if c.kind == "gemm" {
		return 1
	}
	return c.side / c.step
}

// net is a model of convolutions, timed with a platform's coefficients.
type net struct {
	layers   []convLayer
	platform *Platform
	shapes   [][2]int
}

func (n *net) Layers() int { return len(n.layers) }

// Options cuts spatial groups into rows and columns with halo, and single layers by output
// channels.
func (n *net) Options(first, end int) []Option {
	var all []Option
	spatial := true
	for _, l := range n.layers[first:end] {
		spatial = spatial && l.kind != "gemm"
	}
	all = append(all, Option{"whole", []Part{n.part(first, end, span{0, n.layers[end-1].outSide()}, span{0, n.layers[end-1].outSide()}, 1)}})
	if spatial {
		side := n.layers[end-1].outSide()
		for _, s := range n.shapes {
			if s[0] > side || s[1] > side {
				continue
			}
			o := Option{Name: fmt.Sprintf("%dx%d", s[0], s[1])}
			for i := range s[0] {
				for j := range s[1] {
					rows, columns := span{i * side / s[0], (i + 1) * side / s[0]}, span{j * side / s[1], (j + 1) * side / s[1]}
					o.Parts = append(o.Parts, n.part(first, end, rows, columns, 1))
				}
			}
			all = append(all, o)
		}
	}
	if end == first+1 && n.layers[first].kind != "pool" {
		for _, k := range []int{2, 4} {
			o := Option{Name: fmt.Sprintf("channels %d", k)}
			side := n.layers[first].outSide()
			for range k {
				o.Parts = append(o.Parts, n.part(first, end, span{0, side}, span{0, side}, k))
			}
			all = append(all, o)
		}
	}
	return all
}

type span struct{ from, to int }

func (s span) len() float64 { return float64(s.to - s.from) }

// part computes what one range of the last layer's output needs, backwards.
func (n *net) part(first, end int, rows, columns span, share int) Part {
	var p Part
	last := n.layers[end-1]
	p.Out = int64(rows.len()*columns.len()) * int64(last.out/share) * 4
	for i := end - 1; i >= first; i-- {
		l := n.layers[i]
		out := rows.len() * columns.len() * float64(l.out/share)
		if l.kind == "gemm" {
			rows, columns = span{0, l.side}, span{0, l.side}
		} else {
			back := func(s span) span {
				pad := (l.kernel - l.step + 1) / 2
				return span{max(0, s.from*l.step-pad), min(l.side, (s.to-1)*l.step-pad+l.kernel)}
			}
			rows, columns = back(rows), back(columns)
		}
		in := rows.len() * columns.len() * float64(l.in)
		x, weights := in/1024, 0.0
		switch l.kind {
		case "conv":
			weights = float64(l.in*l.out/share*l.kernel*l.kernel) * 4
			x = out * float64(l.in*l.kernel*l.kernel) / 1024
		case "gemm":
			weights = float64(l.in*l.side*l.side*l.out/share) * 4
			x = weights / 4 / 1024
		}
		ms, err := n.platform.ComputeMs(l.kind, x)
		if err != nil {
			panic(err)
		}
		p.Compute += ms
		if l.kind == "conv" {
			ms, _ = n.platform.ComputeMs("relu", out/1024)
			p.Compute += ms
		}
		p.Weights += int64(weights)
		p.Activations = max(p.Activations, int64(4*(in+out)))
		p.In = int64(in) * 4
	}
	return p
}

var (
	bfShapes      = [][2]int{{1, 2}, {2, 2}}
	generalShapes = [][2]int{{1, 2}, {1, 4}, {2, 2}, {2, 4}}
	wideShapes    = [][2]int{{1, 2}, {1, 4}, {2, 2}, {2, 4}, {1, 8}, {4, 4}, {3, 3}}
)

// vgg returns VGG-11, VGG-16 or VGG-19 with convolutions, poolings and dense layers.
func vgg(depth int, p *Platform, shapes [][2]int) *net {
	blocks := map[int][]int{11: {1, 1, 2, 2, 2}, 16: {2, 2, 3, 3, 3}, 19: {2, 2, 4, 4, 4}}[depth]
	n := &net{platform: p, shapes: shapes}
	in, side := 3, 224
	for i, convs := range blocks {
		out := min(512, 64<<i)
		for range convs {
			n.layers = append(n.layers, convLayer{"conv", in, out, 3, 1, side})
			in = out
		}
		n.layers = append(n.layers, convLayer{"pool", in, in, 2, 2, side})
		side /= 2
	}
	n.layers = append(n.layers, convLayer{"gemm", 512, 4096, 1, 1, 7}, convLayer{"gemm", 4096, 4096, 1, 1, 1}, convLayer{"gemm", 4096, 1000, 1, 1, 1})
	return n
}

// wide returns a plain stack of 3x3 convolutions, of the depth and width of a Wide ResNet-34
// or, with depth 50, of more layers.
func wide(depth, width int, p *Platform, shapes [][2]int) *net {
	blocks := []int{6, 8, 12, 6}
	if depth == 50 {
		blocks = []int{9, 12, 18, 9}
	}
	n := &net{platform: p, shapes: shapes}
	n.layers = append(n.layers, convLayer{"conv", 3, 64 * width, 7, 2, 224}, convLayer{"pool", 64 * width, 64 * width, 2, 2, 112})
	in, side := 64*width, 56
	for i, convs := range blocks {
		out := (64 << i) * width
		for j := range convs {
			step := 1
			if i > 0 && j == 0 {
				step = 2
			}
			n.layers = append(n.layers, convLayer{"conv", in, out, 3, step, side})
			in, side = out, side/step
		}
	}
	n.layers = append(n.layers, convLayer{"pool", in, in, side, side, side}, convLayer{"gemm", in, 1000, 1, 1, 1})
	return n
}

// table is a model whose options are given.
type table struct {
	layers  int
	options map[[2]int][]Option
}

func (t *table) Layers() int                     { return t.layers }
func (t *table) Options(first, end int) []Option { return t.options[[2]int{first, end}] }

// randomModel returns a small model with random options, and some groups left out.
func randomModel(r *rand.Rand, layers int) *table {
	t := &table{layers, map[[2]int][]Option{}}
	for first := range layers {
		for end := first + 1; end <= layers; end++ {
			if end > first+1 && r.IntN(4) == 0 {
				continue
			}
			n := float64(end - first)
			compute, weights := n*(20+80*r.Float64()), int64(n)*(1+r.Int64N(60))<<20
			for i, parts := range []int{1, 2, 4} {
				if i > 0 && r.IntN(3) == 0 {
					continue
				}
				o := Option{Name: fmt.Sprint("cut ", parts)}
				if parts == 1 {
					o.Name = "whole"
				}
				equal := r.IntN(2) == 0
				var p Part
				for j := range parts {
					if j == 0 || !equal {
						p = Part{
							Compute: compute / float64(parts) * (1 + 0.3*r.Float64()), Weights: weights / int64(1+r.IntN(parts)),
							Activations: r.Int64N(8 << 20), In: r.Int64N(256 << 10), Out: r.Int64N(256 << 10),
						}
					}
					o.Parts = append(o.Parts, p)
				}
				t.options[[2]int{first, end}] = append(t.options[[2]int{first, end}], o)
			}
		}
	}
	return t
}
