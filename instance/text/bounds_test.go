package text

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// reranker reads pairs for a model that gives them scores.
func reranker(t *testing.T, length int) *Reader {
	t.Helper()
	var inputs []tensor.Info
	for _, name := range []string{IDsInput, maskInput} {
		inputs = append(inputs, tensor.Info{Name: name, Type: tensor.Int32, Shape: []int64{-1, -1}})
	}
	outputs := []tensor.Info{{Name: "y", Type: tensor.FP32, Shape: []int64{-1, 1}}}
	settings := bundle.Text{Task: bundle.TaskRerank, Tokenizer: "tiny.json", MaxLength: length, Pad: "[PAD]"}
	r, err := Open("testdata", settings, inputs, outputs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Pairs that have too many tokens together are refused, and no more of them are read.
func TestPairsAreBounded(t *testing.T) {
	r := reranker(t, 64)
	documents := []string{"x request", "x request", "x request", "x request"}
	rows, _, err := r.Pairs("request", documents)
	if err != nil {
		t.Fatal(err)
	}
	_, at, err := r.pairs("request", documents, 2*len(rows[0].IDs)-1)
	if err == nil || at != 2 || !strings.Contains(err.Error(), "send fewer documents") {
		t.Errorf("document %d: %v", at, err)
	}
	if _, _, err := r.pairs("request", documents, 3*len(rows[0].IDs)); err != nil {
		t.Error(err)
	}
}

// No more than 1 MiB of a text is read, unless that is less than 64 bytes for each token.
func TestLongTextsAreCut(t *testing.T) {
	long := strings.Repeat(" ", 10<<20)
	for length, want := range map[int]int{64: 64 << 10, 8192: 1 << 20, 1 << 17: 8 << 20} {
		if got, cut := reranker(t, length).cut(long); len(got) != want || !cut {
			t.Errorf("%d tokens: %d bytes, want %d", length, len(got), want)
		}
	}
}
