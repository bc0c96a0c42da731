package python_test

import (
	"errors"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func words(name string, shape []int64, of ...string) []tensor.Tensor {
	var data []byte
	for _, s := range of {
		data = tensor.AppendString(data, s)
	}
	return []tensor.Tensor{{Name: name, Type: tensor.Bytes, Shape: shape, Data: data}}
}

func wordsOf(t tensor.Tensor) (out []string) {
	for s := range tensor.Strings(t.Data) {
		out = append(out, string(s))
	}
	return out
}

// TestHandlersOfStrings checks that a handler gets arrays of bytes objects and may return str and
// bytes in arrays and lists, request by request.
func TestHandlersOfStrings(t *testing.T) {
	e, _ := serve(t, handler(t, `
inputs = {"s": ("str", [2])}
outputs = {"y": ("string", [2]), "n": ("int64", [2])}
import numpy as np
def handle(batch):
    assert all(r["s"].dtype == object and isinstance(s, bytes) for r in batch for s in r["s"].flat)
    out = []
    for r in batch:
        n = np.array([[len(s) for s in row] for row in r["s"]])
        kinds = {b"str": lambda: np.char.upper(np.char.decode(r["s"].astype(bytes), "utf-8")), b"list": lambda: [[s + b"\0" for s in row] for row in r["s"]],
                 b"float": lambda: [[1.5, 2.5]], b"numbers": lambda: n}
        out.append({"y": kinds.get(r["s"][0, 0], lambda: r["s"])(), "n": n})
    return out
`))
	if in, out := e.Inputs()[0], e.Outputs()[0]; in.Type != tensor.Bytes || out.Type != tensor.Bytes || out.Name != "y" || !slices.Equal(in.Shape, []int64{-1, 2}) {
		t.Fatalf("%v → %v", e.Inputs(), e.Outputs())
	}
	long := strings.Repeat("x", 10<<20)
	outputs, failed, err := e.RunRequests(t.Context(), []int{2, 1, 1, 1, 1},
		words("s", []int64{6, 2}, "", "\xff\xfe\x00", long, "é", "str", "é", "list", "", "float", "", "numbers", ""))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"", "\xff\xfe\x00", long, "é"}, {"STR", "É"}, {"list\x00", "\x00"}} {
		if failed[i] != nil || !slices.Equal(wordsOf(outputs[i][0]), want) {
			t.Errorf("request %d: %.100q, %v; want %.100q", i, wordsOf(outputs[i][0]), failed[i], want)
		}
	}
	for i, want := range map[int]string{3: "has float among its strings", 4: "handle gave 'y' as int64, and it is object"} {
		if failed[i] == nil || !strings.Contains(failed[i].Error(), want) {
			t.Errorf("request %d: %v, want %q", i, failed[i], want)
		}
	}
	many := slices.Repeat([]string{"word"}, 100_000)
	whole, err := e.Run(t.Context(), len(many)/2, words("s", []int64{int64(len(many) / 2), 2}, many...))
	if err != nil || !slices.Equal(wordsOf(whole[0]), many) {
		t.Errorf("%d strings: %v", len(many), err)
	}
}

// TestHandlersLearnStrings checks that outputs of strings need not be declared.
func TestHandlersLearnStrings(t *testing.T) {
	e, _ := serve(t, handler(t, `
inputs = {"s": ("object", [])}
def handle(batch):
    return [[s.decode() + "!" for s in r["s"]] for r in batch]
`))
	if out := e.Outputs()[0]; out.Type != tensor.Bytes {
		t.Fatalf("the output is %v", out)
	}
	outputs, err := e.Run(t.Context(), 2, words("s", []int64{2}, "a", "é"))
	if err != nil || !slices.Equal(wordsOf(outputs[0]), []string{"a!", "é!"}) {
		t.Errorf("%v, %v", outputs, err)
	}
}

// textModels writes models that take and give strings into a directory.
const textModels = `
import sys, keras, tensorflow as tf
out = sys.argv[1]
vectors = keras.layers.TextVectorization(max_tokens=10, output_sequence_length=3, vocabulary=["cat", "dog"])
text = keras.Input((1,), dtype="string", name="text")
keras.Model(text, vectors(text)).save(out + "/text.keras")
class Shout(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="s"), tf.TensorSpec([None], tf.int64, name="at")])
    def __call__(self, s, at):
        return {"loud": tf.strings.upper(s), "found": tf.gather(tf.constant([1.0, 2.0]), at)}
shout = Shout()
tf.saved_model.save(shout, out + "/shout", signatures=shout.__call__)
`

func TestTensorFlowOfStrings(t *testing.T) {
	env, err := environment.Ensure(t.Context(), "tensorflow", "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if text, err := exec.CommandContext(t.Context(), env.Python, "-c", textModels, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	vectors, _ := serve(t, bundleOf(t, dir, "text.keras", "", nil))
	outputs, err := vectors.Run(t.Context(), 2, words("text", []int64{2, 1}, "dog cat", "Cat bird"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{3, 2, 0, 2, 1, 0} {
		if got := outputs[0].Type.Number(outputs[0].Data[i*outputs[0].Type.Size():]); got != want {
			t.Errorf("word %d is %g, want %g", i, got, want)
		}
	}
	shout, _ := serve(t, bundleOf(t, dir, "shout", "", nil))
	at := func(n ...byte) tensor.Tensor {
		in := tensor.Tensor{Name: "at", Type: tensor.Int64, Shape: []int64{int64(len(n))}}
		for _, v := range n {
			in.Data = append(in.Data, v, 0, 0, 0, 0, 0, 0, 0)
		}
		return in
	}
	inputs := func(n ...byte) []tensor.Tensor {
		both := append(words("s", []int64{2}, "quiet", "\xff"), at(n...))
		if shout.Inputs()[0].Name == "at" {
			slices.Reverse(both)
		}
		return both
	}
	outputs, err = shout.Run(t.Context(), 2, inputs(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	for i, out := range shout.Outputs() {
		if out.Name == "loud" && !slices.Equal(wordsOf(outputs[i]), []string{"QUIET", "\xff"}) {
			t.Errorf("%q", wordsOf(outputs[i]))
		}
	}
	_, err = shout.Run(t.Context(), 2, inputs(1, 9))
	var caused interface{ HTTPStatus() int }
	if !errors.As(err, &caused) || caused.HTTPStatus() != http.StatusBadRequest || !strings.Contains(err.Error(), "the model cannot compute with these inputs: indices[1] = 9 is not in [0, 2)") {
		t.Errorf("an index outside the table: %v", err)
	}
}
