package convert

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/faas-infer/faas-infer/model/tensor"
)

var inputPattern = regexp.MustCompile(`^\s*([^=\s]+)\s*=\s*([A-Za-z0-9]+)\s*\[([^\[\]]*)\]\s*$`)

// types are the types of inputs by NumPy's names.
var types = map[string]tensor.Type{
	"bool": tensor.Bool, "uint8": tensor.Uint8, "int8": tensor.Int8, "int16": tensor.Int16, "uint16": tensor.Uint16,
	"int32": tensor.Int32, "uint32": tensor.Uint32, "int64": tensor.Int64, "uint64": tensor.Uint64,
	"float16": tensor.FP16, "float32": tensor.FP32, "float64": tensor.FP64,
}

// ParseInput parses an input such as x=float32[?,3,224,224]. A ? is a dynamic dimension.
// The first dimension, the batch, must be ?.
func ParseInput(text string) (tensor.Info, error) {
	m := inputPattern.FindStringSubmatch(text)
	if m == nil {
		return tensor.Info{}, fmt.Errorf("%q is not NAME=TYPE[SHAPE], for example x=float32[?,3,224,224]", text)
	}
	info := tensor.Info{Name: m[1], Type: types[strings.ToLower(m[2])]}
	if info.Type == "" {
		return tensor.Info{}, fmt.Errorf("%q has the type %s; use NumPy's names: float32, int64, uint8, bool, …", text, m[2])
	}
	for part := range strings.SplitSeq(m[3], ",") {
		part = strings.TrimSpace(part)
		n, err := strconv.ParseInt(part, 10, 64)
		if part == "?" {
			n = -1
		} else if err != nil || n < 1 {
			return tensor.Info{}, fmt.Errorf("%q has the dimension %q; it must be a number of at least 1, or ?", text, part)
		}
		info.Shape = append(info.Shape, n)
	}
	if info.Shape[0] != -1 {
		return tensor.Info{}, fmt.Errorf("%q has the first dimension %d; this is the batch, so write ?", text, info.Shape[0])
	}
	return info, nil
}
