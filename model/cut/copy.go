package cut

import "fmt"

// Take copies a region out of a tensor of this shape, whose elements have size bytes.
func Take(from []byte, shape []int64, r Region, size int) ([]byte, error) {
	if err := fits(from, shape, r, size); err != nil {
		return nil, err
	}
	n := size
	for _, s := range r {
		n *= int(s.Size())
	}
	out := make([]byte, 0, n)
	err := eachRun(shape, r, func(first, n int64) error {
		out = append(out, from[first*int64(size):(first+n)*int64(size)]...)
		return nil
	})
	return out, err
}

// Put copies a region, as [Take] returns it, into a tensor of this shape.
func Put(into []byte, shape []int64, r Region, size int, part []byte) error {
	if err := fits(into, shape, r, size); err != nil {
		return err
	}
	n := int64(size)
	for _, s := range r {
		n *= s.Size()
	}
	if int64(len(part)) != n {
		return fmt.Errorf("region %v has %d bytes, not %d", r, n, len(part))
	}
	return eachRun(shape, r, func(first, n int64) error {
		copied := copy(into[first*int64(size):(first+n)*int64(size)], part)
		part = part[copied:]
		return nil
	})
}

func fits(b []byte, shape []int64, r Region, size int) error {
	n := int64(size)
	for _, d := range shape {
		n *= d
	}
	if int64(len(b)) != n || len(r) != len(shape) {
		return fmt.Errorf("%d bytes and region %v are not of a tensor of shape %v with elements of %d bytes", len(b), r, shape, size)
	}
	for d, s := range r {
		if s.From < 0 || s.To > shape[d] || s.empty() {
			return fmt.Errorf("region %v is not within shape %v", r, shape)
		}
	}
	return nil
}
