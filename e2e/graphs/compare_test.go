package graphs

import (
	"math"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/tensor"
)

func float32s(values ...float32) []byte { return result("", tensor.FP32, nil, values).Data }

func int64s(values ...int64) []byte { return result("", tensor.Int64, nil, values).Data }

// Float noise is right, and every other difference is wrong.
func TestCompare(t *testing.T) {
	nan := float32(math.NaN())
	inf := float32(math.Inf(1))
	type values = []byte
	for name, c := range map[string]struct {
		of               tensor.Type
		got, want, moved values
		wrong            string
	}{
		"noise":                    {tensor.FP32, float32s(1.0005, 10), float32s(1, 10), float32s(1, 10), ""},
		"noise of the largest":     {tensor.FP32, float32s(0.0009, 10), float32s(0, 10), float32s(0, 10), ""},
		"too much":                 {tensor.FP32, float32s(1.01, 10), float32s(1, 10), float32s(1, 10), "number 0 is 1.0099"},
		"a sensitive number":       {tensor.FP32, float32s(1.01), float32s(1), float32s(1.005), ""},
		"no number":                {tensor.FP32, float32s(nan), float32s(nan), float32s(nan), ""},
		"no number where one is":   {tensor.FP32, float32s(nan), float32s(1), float32s(1), "is NaN"},
		"infinite":                 {tensor.FP32, float32s(inf, 1), float32s(inf, 1), float32s(inf, 1), ""},
		"infinite and not":         {tensor.FP32, float32s(1), float32s(inf), float32s(inf), "not +Inf"},
		"another whole number":     {tensor.Int64, int64s(3, 4), int64s(3, 5), int64s(3, 5), "number 1 is 4"},
		"two equal scores":         {tensor.Int64, int64s(3, 4), int64s(3, 5), int64s(3, 4), ""},
		"the same strings":         {tensor.Bytes, AppendString(nil, "a"), AppendString(nil, "a"), nil, ""},
		"another string":           {tensor.Bytes, AppendString(nil, "b"), AppendString(nil, "a"), nil, `"b" and not "a"`},
		"a string that is cut off": {tensor.Bytes, []byte{9, 0, 0, 0, 'a'}, AppendString(nil, "a"), nil, "cut off"},
		"too few":                  {tensor.FP32, float32s(1), float32s(1, 2), float32s(1, 2), "bytes"},
	} {
		want := Want{Name: "y", Type: c.of, Shape: []int64{1}, Data: c.want, Moved: c.moved}
		err := Compare([]tensor.Tensor{{Name: "y", Type: c.of, Shape: []int64{1}, Data: c.got}}, []Want{want})
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", name, err, c.wrong)
		}
	}
	got := []tensor.Tensor{{Name: "y", Type: tensor.FP32, Shape: []int64{1}, Data: float32s(1)}}
	for what, want := range map[string][]Want{
		"missing": {{Name: "z"}}, "the type": {{Name: "y", Type: tensor.FP64}}, "the shape": {{Name: "y", Type: tensor.FP32, Shape: []int64{1, 1}}}, "outputs": nil,
	} {
		if err := Compare(got, want); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
}
