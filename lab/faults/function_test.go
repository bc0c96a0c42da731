package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// answer is one in binary form.
func answer(t *testing.T, values ...float32) []byte {
	t.Helper()
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	body, _, err := load.EncodeBinary([]tensor.Tensor{{Name: "y", Type: tensor.FP32, Shape: []int64{1, int64(len(values))}, Data: data}})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// An answer stands for the input whose known answer it is but for its last bits. Inputs
// whose answers are alike are left out.
func TestDigits(t *testing.T) {
	known := map[string][]byte{"a": answer(t, 0, 1), "b": answer(t, 1, 0), "like a": answer(t, 0, 1), "c": answer(t, 0.5, 0.5)}
	k := &digits{bodies: [][]byte{[]byte("a"), []byte("b"), []byte("like a"), []byte("c")}}
	if err := k.learn(t.Context(), func(_ context.Context, body []byte) ([]byte, error) { return known[string(body)], nil }); err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, body := range k.bodies {
		kept = append(kept, string(body))
	}
	if slices.Sort(kept); !slices.Equal(kept, []string{"a", "b", "c"}) || k.apart != 0.5 {
		t.Errorf("%v, %v apart", kept, k.apart)
	}
	for i, body := range k.bodies {
		if got := k.hash(known[string(body)]); got != Hash(i) {
			t.Errorf("the answer to %s is %d", body, got)
		}
	}
	a := slices.IndexFunc(k.bodies, func(b []byte) bool { return string(b) == "a" })
	if got := k.hash(answer(t, 1e-6, 1-1e-6)); got != Hash(a) {
		t.Errorf("an answer that differs in its last bits is %d", got)
	}
	for name, wrong := range map[string][]byte{"between two": answer(t, 0.25, 0.75), "longer": answer(t, 0, 1, 0), "no number": answer(t, float32(math.NaN()), 1), "empty": nil, "text": []byte("no such function")} {
		if got := k.hash(wrong); int(got) < len(k.bodies) && got>>63 == 0 {
			t.Errorf("%s is %d", name, got)
		}
	}
}

func TestDigitsThatCannotBeTold(t *testing.T) {
	k := &digits{bodies: [][]byte{nil, nil}}
	if err := k.choose([][]float32{{1, 2}, {1, 2}}); err == nil {
		t.Error("two equal answers can be told apart")
	}
	broken := errors.New("broken")
	k = &digits{bodies: [][]byte{nil}}
	if err := k.learn(t.Context(), func(context.Context, []byte) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestAdder(t *testing.T) {
	f := adder()
	double := func(x float64) []byte {
		body, _, err := load.EncodeBinary([]tensor.Tensor{{Name: "y", Type: tensor.FP64, Shape: []int64{1, 1}, Data: binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))}})
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	if f.hash(double(8)) != f.want(7) || f.hash(double(9)) == f.want(7) || f.want(7) == f.want(8) {
		t.Error("the answer to 7 is 8")
	}
	if len(f.body(7)) != len(f.body(1<<40)) {
		t.Error("headers have different lengths")
	}
}
