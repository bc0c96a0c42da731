package tensor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Shapes are whole shapes of inputs by name, the batch included. They give sizes to dynamic
// dimensions.
type Shapes map[string][]int64

// ParseShapes reads the notation of trtexec, "ids:1x128,mask:1x128". A name may contain a
// colon, because the last one ends it. An empty text is nil.
func ParseShapes(text string) (Shapes, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	s := Shapes{}
	for _, one := range strings.Split(text, ",") {
		one = strings.TrimSpace(one)
		colon := strings.LastIndexByte(one, ':')
		if colon < 1 {
			return nil, fmt.Errorf("%q is not an input's name, a colon and its sizes, such as ids:1x128", one)
		}
		name, sizes := one[:colon], one[colon+1:]
		if _, twice := s[name]; twice {
			return nil, fmt.Errorf("the input %q has two shapes; give it one", name)
		}
		shape := []int64{}
		for _, size := range strings.Split(sizes, "x") {
			n, err := strconv.ParseInt(size, 10, 64)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("%q has the size %q; sizes are whole numbers of at least 1 between x, such as 1x128", one, size)
			}
			shape = append(shape, n)
		}
		if _, err := Elements(shape); err != nil {
			return nil, fmt.Errorf("%q: %w", one, err)
		}
		s[name] = shape
	}
	return s, nil
}

// String writes the shapes as [ParseShapes] reads them, sorted by name.
func (s Shapes) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		sizes := make([]string, len(s[name]))
		for i, d := range s[name] {
			sizes[i] = strconv.FormatInt(d, 10)
		}
		all = append(all, name+":"+strings.Join(sizes, "x"))
	}
	return strings.Join(all, ",")
}

// Fill returns inputs with the shapes' sizes in free dimensions other than the batch. It returns an
// error for an input of another rank or with another fixed size.
func (s Shapes) Fill(inputs []Info) ([]Info, error) {
	if s == nil {
		return inputs, nil
	}
	filled := slices.Clone(inputs)
	for i, in := range inputs {
		given := s[in.Name]
		if given == nil || in.Shape == nil {
			continue
		}
		if len(given) != len(in.Shape) {
			return nil, fmt.Errorf("the input %q has %d dimensions, %v, and its shape here has %d; give as many, the batch included", in.Name, len(in.Shape), in.Shape, len(given))
		}
		filled[i].Shape = slices.Clone(in.Shape)
		for k, d := range in.Shape {
			switch {
			case d >= 0 && given[k] != d:
				return nil, fmt.Errorf("dimension %d of the input %q is fixed at %d, and its shape here says %d; write %d", k, in.Name, d, given[k], d)
			case d < 0 && k > 0:
				filled[i].Shape[k] = given[k]
			}
		}
	}
	return filled, s.checkNames(inputs)
}

func (s Shapes) checkNames(inputs []Info) error {
	var names []string
	for _, in := range inputs {
		names = append(names, in.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("the model has no input %q; name one of %v", name, names)
		}
	}
	return nil
}
