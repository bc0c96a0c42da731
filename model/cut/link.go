package cut

// Link says which positions along one dimension of an input the positions along the
// dimensions of the output need.
type Link struct {
	Kind Kind
	// Dim is the output's dimension, for every kind but Everything.
	Dim int
	// Window is that of a [Window].
	Window Slide
	// Out and In are the sizes of a [Block].
	Out, In int64
}

// Kind is a kind of link.
type Kind uint8

const (
	// Everything: each position of the output needs all of the input's dimension.
	Everything Kind = iota
	// Same: a position needs the one at the same place.
	Same
	// Window: a position needs those that its window covers.
	Window
	// Block: the positions of block i of the output, Out of them, need block i of the input,
	// In of them. These are the channels of a grouped convolution.
	Block
)

// Slide is how a window moves along one dimension. Before is the padding before the first
// position and may be negative.
type Slide struct{ Kernel, Stride, Dilation, Before, After int64 }

// reach is the span of the input, its padding included, that a span of the output needs.
// For example positions 2 and 3 of a window of 3 with stride 2 and one position of padding
// need positions 2·2−1 = 3 up to 3·2−1+2 = 7: [3,8).
func (w Slide) reach(out Span) Span {
	return Span{out.From*w.Stride - w.Before, (out.To-1)*w.Stride - w.Before + w.extent()}
}

// extent is the number of positions from a window's first to its last.
func (w Slide) extent() int64 { return (w.Kernel-1)*w.Dilation + 1 }

// pads are the positions of padding before and after the input's span in that a span of the
// output needs. Where the last window of a pooling with ceil_mode reaches beyond the padding,
// the pooling itself adds what lacks.
func (w Slide) pads(out, in Span) (before, after int64) {
	reach := w.reach(out)
	return max(0, in.From-reach.From), max(0, min(reach.To-in.To, w.After))
}

// fits reports whether a span of the input holds a whole window, with its padding.
func (w Slide) fits(out, in Span) bool {
	before, after := w.pads(out, in)
	return before+in.Size()+after >= w.extent()
}

// within cuts a span to 0 up to size.
func (s Span) within(size int64) Span {
	out := Span{max(0, min(s.From, size)), max(0, min(s.To, size))}
	out.To = max(out.To, out.From)
	return out
}

// need is the span of an input's dimension of this size that a region of the output needs.
func (l Link) need(out Region, size int64) Span {
	switch l.Kind {
	case Same:
		return out[l.Dim]
	case Window:
		return l.Window.reach(out[l.Dim]).within(size)
	case Block:
		s := out[l.Dim]
		return Span{s.From / l.Out * l.In, (s.To + l.Out - 1) / l.Out * l.In}
	}
	return Span{0, size}
}

// Links are an operator's links, for each input one per dimension. An input that no region
// of the output needs, or that is left out, has none.
type Links [][]Link

// cuttable reports for each dimension of the output whether an operator can compute a part
// of it. It can if the inputs' regions say which part.
func (l Links) cuttable(rank int) []bool {
	out := make([]bool, rank)
	for _, input := range l {
		for _, link := range input {
			if link.Kind != Everything {
				out[link.Dim] = true
			}
		}
	}
	return out
}

// everything are links of n inputs, each of the rank that rank returns, that cut nothing.
func everything(shapes [][]int64) Links {
	l := make(Links, len(shapes))
	for i, s := range shapes {
		l[i] = make([]Link, len(s))
	}
	return l
}
