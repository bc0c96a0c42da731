package rules

import (
	"fmt"
	"math/bits"
)

// spec is the place of one index in x[begin:end:stride, ...].
type spec struct {
	begin, end, stride          int64
	known, fromStart, toEnd     bool
	ellipsis, newAxis, shrinked bool
}

// specs reads the indices of a StridedSlice; nil if not even their number is
// known.
func (c *Call) specs() ([]spec, error) {
	var n int64 = -1
	for i := 1; i <= 3; i++ {
		if dims := c.in(i).Shape; len(dims) == 1 && dims[0] >= 0 {
			n = dims[0]
		}
	}
	if n < 0 {
		return nil, nil
	}
	if n > maxRank {
		return nil, fmt.Errorf("%d indices", n)
	}
	bit := func(name string, i int) bool { return c.int(name)>>i&1 != 0 }
	all := make([]spec, n)
	begin, end, stride := c.ints(1), c.ints(2), c.ints(3)
	for i := range all {
		s := &all[i]
		s.ellipsis, s.newAxis, s.shrinked = bit("ellipsis_mask", i), bit("new_axis_mask", i), bit("shrink_axis_mask", i)
		s.fromStart, s.toEnd = bit("begin_mask", i), bit("end_mask", i)
		s.known = int64(len(stride)) == n && (s.fromStart || int64(len(begin)) == n) && (s.toEnd || s.shrinked || int64(len(end)) == n)
		if int64(len(begin)) == n {
			s.begin = begin[i]
		}
		if int64(len(end)) == n {
			s.end = end[i]
		}
		if int64(len(stride)) == n {
			s.stride = stride[i]
		}
	}
	return all, nil
}

// stridedSlice is Python's indexing.
func stridedSlice(c *Call) ([]Value, error) {
	x := c.in(0)
	all, err := c.specs()
	if x.Shape == nil || all == nil || err != nil {
		return of(x, nil), err
	}
	// What the indices behind an ellipsis do not take, it does.
	rest := len(x.Shape) - len(all) + bits.OnesCount64(masked(all, func(s spec) bool { return s.newAxis && !s.ellipsis }))
	if masked(all, func(s spec) bool { return s.ellipsis }) != 0 {
		rest++
	}
	if rest < 0 {
		return nil, fmt.Errorf("%d indices for input %v", len(all), x.Shape)
	}
	dims, at, ellipsis := []int64{}, 0, false
	var ints []int64
	for _, s := range all {
		switch {
		case s.ellipsis && ellipsis:
			return nil, fmt.Errorf("two ellipses")
		case s.ellipsis:
			ellipsis = true
			dims = append(dims, x.Shape[at:at+rest]...)
			at += rest
		case s.newAxis:
			dims = append(dims, 1)
		default:
			from, n, err := s.size(x.Shape[at])
			if err != nil {
				return nil, err
			}
			if !s.shrinked {
				dims = append(dims, n)
			}
			if len(x.Shape) == 1 {
				ints = s.pick(x.Ints, from, n)
			}
			at++
		}
	}
	out := of(x, append(dims, x.Shape[at:]...))
	out[0].Ints = ints
	return out, nil
}

func masked(all []spec, is func(spec) bool) (mask uint64) {
	for i, s := range all {
		if is(s) {
			mask |= 1 << i
		}
	}
	return mask
}

// size is where a dimension of d is entered, and how many elements are taken; -1
// if that is not known.
func (s spec) size(d int64) (from, n int64, err error) {
	if s.shrinked {
		if s.known && d >= 0 && (s.begin >= d || s.begin < -d) && !s.fromStart {
			return 0, 0, fmt.Errorf("index %d of a dimension of %d", s.begin, d)
		}
		if from = s.begin; s.fromStart {
			from = 0
		} else if from < 0 && d >= 0 {
			from += d
		}
		if !s.known {
			from = -1
		}
		return from, 1, nil
	}
	if s.known && s.stride == 0 {
		return 0, 0, fmt.Errorf("a stride of 0")
	}
	if !s.known || d < 0 {
		return -1, -1, nil
	}
	const far = 1 << 40
	stride, low, high := min(max(s.stride, -far), far), int64(0), d
	begin, end := low, high
	if stride < 0 {
		low, high = -1, d-1
		begin, end = high, low
	}
	bound := func(i int64) int64 {
		if i < 0 {
			i += d
		}
		return min(max(i, low), high)
	}
	if !s.fromStart {
		begin = bound(s.begin)
	}
	if !s.toEnd {
		end = bound(s.end)
	}
	length, step := end-begin, stride
	if stride < 0 {
		length, step = begin-end, -stride
	}
	if length <= 0 {
		return begin, 0, nil
	}
	return begin, (length-1)/step + 1, nil
}

// pick are the elements that an index takes; nil if they are not known.
func (s spec) pick(ints []int64, from, n int64) []int64 {
	if from < 0 || n < 0 || n > int64(len(ints)) {
		return nil
	}
	stride := s.stride
	if s.shrinked {
		stride = 1
	}
	out := []int64{}
	for i := range n {
		at := from + i*stride
		if at < 0 || at >= int64(len(ints)) {
			return nil
		}
		out = append(out, ints[at])
	}
	return out
}
