package cut

import "slices"

func transpose(n *node) (Links, bool) {
	perm, _ := n.ints("perm", -1)
	rank := len(n.in[0])
	for i := rank - 1; i >= 0 && len(perm) < rank; i-- {
		perm = append(perm, int64(i))
	}
	l := everything(n.in)
	for at, d := range perm {
		l.same(0, int(d), at)
	}
	return l, true
}

// reshape links the first dimensions that input and output have in common, and the last:
// what lies between is laid out again within each of their positions.
func reshape(n *node) (Links, bool) {
	in, out := n.in[0], n.out
	l := everything(n.in)
	first := 0
	for first < min(len(in), len(out)) && in[first] == out[first] {
		l.same(0, first, first)
		first++
	}
	for k := 1; k <= min(len(in), len(out))-first && in[len(in)-k] == out[len(out)-k]; k++ {
		l.same(0, len(in)-k, len(out)-k)
	}
	return l, len(n.in) > 1
}

// squeeze links the dimensions that stay. Without axes, a part of one position would lose
// its dimension.
func squeeze(n *node) (Links, bool) {
	values, known := n.ints("axes", 1)
	if !known || len(values) == 0 {
		return nil, false
	}
	return kept(n, len(n.in[0]), values, func(l Links, long, short int) { l.same(0, long, short) })
}

func unsqueeze(n *node) (Links, bool) {
	values, known := n.ints("axes", 1)
	if !known {
		return nil, false
	}
	return kept(n, len(n.out), values, func(l Links, long, short int) { l.same(0, short, long) })
}

// kept pairs the dimensions of the longer shape that are not among the axes with those of
// the shorter.
func kept(n *node, rank int, axes []int64, pair func(l Links, long, short int)) (Links, bool) {
	l, short := everything(n.in), 0
	for d := range rank {
		if slices.Contains(axes, int64(d)) || slices.Contains(axes, int64(d-rank)) {
			continue
		}
		pair(l, d, short)
		short++
	}
	return l, short+len(axes) == rank
}

func concat(n *node) (Links, bool) {
	at, ok := axis(n.int("axis", 0), len(n.out))
	l := everything(n.in)
	for i := range l {
		for d := range l[i] {
			if d != at {
				l.same(i, d, d)
			}
		}
	}
	return l, ok
}

// slice links the dimensions that it does not slice.
func slice(n *node) (Links, bool) {
	axes, known := n.ints("axes", 3)
	starts, _ := n.ints("starts", 1)
	if !known {
		return nil, false
	}
	l := everything(n.in)
	for d := range n.in[0] {
		sliced := axes == nil && d < len(starts) || slices.Contains(axes, int64(d)) || slices.Contains(axes, int64(d-len(n.in[0])))
		if !sliced {
			l.same(0, d, d)
		}
	}
	return l, starts != nil
}

// pad links the dimensions that it does not pad.
func pad(n *node) (Links, bool) {
	pads, known := n.ints("pads", 1)
	rank := len(n.in[0])
	if !known || len(pads) != 2*rank || len(n.in) > 3 && n.in[3] != nil { // Its axes may be in any order.
		return nil, false
	}
	l := everything(n.in)
	for d := range rank {
		if pads[d] == 0 && pads[rank+d] == 0 {
			l.same(0, d, d)
		}
	}
	return l, true
}

// gather links the dimensions of the table but the one that it looks up, and those of the
// indices.
func gather(n *node) (Links, bool) {
	table, indices := n.in[0], n.in[1]
	at, ok := axis(n.int("axis", 0), len(table))
	if !ok {
		return nil, false
	}
	l := everything(n.in)
	for d := range table {
		switch {
		case d < at:
			l.same(0, d, d)
		case d > at:
			l.same(0, d, d-1+len(indices))
		}
	}
	for d := range indices {
		l.same(1, d, at+d)
	}
	return l, true
}
