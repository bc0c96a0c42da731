package cut

// convolution links the output's channels to the weights, which hold them in their first
// dimension, and to the input's channels, if it has groups. The other dimensions are windows.
func convolution(n *node) (Links, bool) {
	rank := len(n.in[0])
	if rank < 3 || len(n.in) < 2 || len(n.in[1]) != rank {
		return nil, false
	}
	l := everything(n.in)
	l.same(0, 0, 0)
	if groups := n.int("group", 1); groups > 1 {
		l[0][1] = Link{Kind: Block, Dim: 1, Out: n.out[1] / groups, In: n.in[0][1] / groups}
	}
	l.same(1, 0, 1)
	if len(n.in) > 2 && n.in[2] != nil {
		l.same(2, 0, 1)
	}
	return l, l.slide(n, n.in[1][2:])
}

func pool(n *node) (Links, bool) {
	l := everything(n.in)
	l.same(0, 0, 0)
	l.same(0, 1, 1)
	kernel, _ := n.ints("kernel_shape", -1)
	return l, l.slide(n, kernel) && n.int("storage_order", 0) == 0
}

// slide links the dimensions from the third on as windows.
func (l Links) slide(n *node, kernel []int64) bool {
	windows, ok := windowsOf(n, kernel)
	for d, w := range windows {
		l[0][d+2] = Link{Kind: Window, Dim: d + 2, Window: w}
	}
	return ok
}

// windowsOf reads the windows of a convolution or pooling. Where auto_pad gives the padding,
// it is worked out from the sizes: the uneven position is after the input for SAME_UPPER, and
// before it for SAME_LOWER.
func windowsOf(n *node, kernel []int64) ([]Slide, bool) {
	spatial := len(n.in[0]) - 2
	read := func(name string, size int, otherwise int64) []int64 {
		if a := n.attribute(name); a != nil {
			return a.GetInts()
		}
		values := make([]int64, size)
		for i := range values {
			values[i] = otherwise
		}
		return values
	}
	strides, dilations, pads := read("strides", spatial, 1), read("dilations", spatial, 1), read("pads", 2*spatial, 0)
	if spatial < 1 || len(kernel) != spatial || len(strides) != spatial || len(dilations) != spatial || len(pads) != 2*spatial {
		return nil, false
	}
	out := make([]Slide, spatial)
	for i := range out {
		w := Slide{Kernel: kernel[i], Stride: strides[i], Dilation: dilations[i], Before: pads[i], After: pads[spatial+i]}
		if w.Kernel < 1 || w.Stride < 1 || w.Dilation < 1 {
			return nil, false
		}
		total := max(0, (n.out[i+2]-1)*w.Stride+(w.Kernel-1)*w.Dilation+1-n.in[0][i+2])
		switch string(n.attribute("auto_pad").GetS()) {
		case "SAME_UPPER":
			w.Before, w.After = total/2, total-total/2
		case "SAME_LOWER":
			w.Before, w.After = total-total/2, total/2
		case "VALID":
			w.Before, w.After = 0, 0
		}
		out[i] = w
	}
	return out, true
}

// product links the rows to the first operand, the columns to the second, and the further
// dimensions as operands of a broadcast.
func product(n *node) (Links, bool) {
	a, b, rank := n.in[0], n.in[1], len(n.out)
	if len(a) < 2 || len(b) < 2 || rank < 2 {
		return nil, false
	}
	l := everything(n.in)
	l.align(0, a[:len(a)-2], n.out[:rank-2])
	l.align(1, b[:len(b)-2], n.out[:rank-2])
	l.same(0, len(a)-2, rank-2)
	l.same(1, len(b)-1, rank-1)
	return l, true
}

func gemm(n *node) (Links, bool) {
	l := everything(n.in)
	l.same(0, int(n.int("transA", 0)&1), 0)
	l.same(1, 1-int(n.int("transB", 0)&1), 1)
	if len(n.in) > 2 {
		l.align(2, n.in[2], n.out)
	}
	return l, true
}
