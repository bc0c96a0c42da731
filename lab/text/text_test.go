package text

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/peers"
	"github.com/faas-infer/faas-infer/model/tokenizer"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct{ names, want []string }{
		{nil, Peers()}, {[]string{peers.None}, nil}, {[]string{"kserve", "fixed.none"}, []string{"kserve", "fixed.none"}},
	} {
		some, err := choose(c.names)
		var got []string
		for _, p := range some {
			got = append(got, p.name)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v, not %v", c.names, got, err, c.want)
		}
	}
	if _, err := choose([]string{"tei"}); err == nil || !strings.Contains(err.Error(), "infinity") {
		t.Errorf("an unknown peer: %v", err)
	}
}

func TestValidate(t *testing.T) {
	for says, change := range map[string]func(*Bench){
		"":              func(*Bench) {},
		"--slo":         func(b *Bench) { b.SLO = 0 },
		"--trial":       func(b *Bench) { b.Trial = -time.Second },
		"--length 7":    func(b *Bench) { b.Length = 7 },
		"--length 513":  func(b *Bench) { b.Length = 513 },
		`no "bert"`:     func(b *Bench) { b.Models = []string{"bert"} },
		`no "speed"`:    func(b *Bench) { b.Parts = []string{PartCold, "speed"} },
		"--texts":       func(b *Bench) { b.Texts = 0 },
		"and --colds m": func(b *Bench) { b.Colds = 0 },
	} {
		b := Default
		change(&b)
		if err := b.validate(); (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
}

// words is a tokenizer whose tokens are words, between two special ones.
const words = `{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "decoder": null,
"pre_tokenizer": {"type": "Whitespace"},
"post_processor": {"type": "TemplateProcessing",
 "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
 "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
 "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}}},
"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
 "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}}}`

// The texts have the lengths of the corpus, cut to the maximum, and are the same in each run.
func TestTake(t *testing.T) {
	reader, err := tokenizer.New([]byte(words), tokenizer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	read := func() *corpus {
		c := &corpus{}
		for n := 1; n <= 1000; n++ {
			c.whole = append(c.whole, strings.TrimSpace(strings.Repeat("a ", n)))
		}
		if err := c.take(reader, 100, 300); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := read()
	if !slices.Equal(c.texts, read().texts) {
		t.Error("two runs have different texts")
	}
	sorted := slices.Sorted(slices.Values(c.tokens))
	if len(sorted) != 100 || sorted[0] > 10 || sorted[99] != 300 || slices.IsSorted(c.tokens) {
		t.Errorf("%d texts of %d to %d tokens", len(sorted), sorted[0], sorted[99])
	}
	if at, _ := slices.BinarySearch(sorted, 300); at < 28 || at > 32 {
		t.Errorf("%d of 100 texts are shorter than 300 tokens; about 30 of 100 are", at)
	}
	for _, text := range c.long {
		if n, err := count(reader, text); n < longest || err != nil {
			t.Errorf("a long text has %d tokens, %v", n, err)
		}
	}
	if len(c.long) != 1000-longest+3 {
		t.Errorf("%d long texts", len(c.long))
	}
	if err := (&corpus{whole: []string{"a"}}).take(reader, 2, 300); err == nil {
		t.Error("one text is taken twice")
	}
	// The second one is that of another text.
	sums := []uint32{3304473960, 298567516}
	if n, err := differing(reader, []string{"a", "a a a"}, sums); n != 1 || err != nil {
		t.Errorf("%d texts differ, %v", n, err)
	}
	if _, err := differing(reader, []string{"a"}, sums); err == nil {
		t.Error("two checksums fit one text")
	}
	if rate, err := tokensPerSecond(reader, c.whole); err != nil || !(rate > 0) {
		t.Errorf("%v tokens/s, %v", rate, err)
	}
}

func TestWays(t *testing.T) {
	for _, c := range []struct {
		way  way
		body string
		want []float32
	}{
		{openAI, `{"object": "list", "data": [{"index": 0, "embedding": [0.5, -1]}]}`, []float32{0.5, -1}},
		{openAI, `{"data": []}`, nil}, {openAI, `{"data": [{"embedding": [1]}, {"embedding": [1]}]}`, nil}, {openAI, `[`, nil},
		{v1, `{"predictions": [[0.5, -1]]}`, []float32{0.5, -1}},
		{v1, `{"predictions": []}`, nil}, {v1, `{"error": "no"}`, nil},
	} {
		got, err := c.way.decode([]byte(c.body))
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %v, %v", c.body, got, err)
		}
	}
}

func TestDifference(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		a, b []float32
		want float64
	}{
		{[]float32{1, 2}, []float32{1, 2.5}, 0.5}, {[]float32{1}, []float32{1, 2}, math.Inf(1)}, {nil, nil, 0},
	} {
		if got := difference(c.a, c.b); got != c.want {
			t.Errorf("%v, %v: %v", c.a, c.b, got)
		}
	}
	if got := difference([]float32{nan, 0}, []float32{0, 0}); got <= tolerance {
		t.Errorf("a vector without numbers is off by %v", got)
	}
	if got := cosine([]float32{3, 4}, []float32{6, 8}); math.Abs(got-1) > 1e-12 {
		t.Errorf("the cosine of one direction is %v", got)
	}
}

// What a server writes into its folder does not reach the model's.
func TestLinkFolder(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "model")
	inside := filepath.Join("1_Pooling", "config.json")
	if err := os.MkdirAll(filepath.Join(from, "1_Pooling"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, inside), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := linkFolder(to, from); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(to, inside)); err != nil || string(text) != "{}" {
		t.Errorf("%q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(to, "optimised.onnx"), nil, 0o644); err != nil || exists(filepath.Join(from, "optimised.onnx")) {
		t.Errorf("the model's folder has the server's file: %v", err)
	}
}
