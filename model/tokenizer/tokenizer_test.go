package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// named returns a tokenizer of the checked-in references.
func named(t testing.TB, name string, options Options) *Tokenizer {
	t.Helper()
	for _, r := range table(t) {
		if r.name == name {
			tokenizer, err := New(r.file, options)
			if err != nil {
				t.Fatal(err)
			}
			return tokenizer
		}
	}
	t.Fatalf("no tokenizer %s", name)
	return nil
}

// small is a file with one part replaced.
func small(field, value string) []byte {
	parts := map[string]string{
		"version": `"1.0"`, "truncation": "null", "padding": "null", "added_tokens": "[]", "normalizer": "null",
		"pre_tokenizer": `{"type":"Whitespace"}`, "post_processor": "null", "decoder": "null",
		"model": `{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##","max_input_chars_per_word":100,` +
			`"vocab":{"u":0,"a":1,"##b":2}}`,
	}
	parts[field] = value
	raw := map[string]json.RawMessage{}
	for name, part := range parts {
		raw[name] = json.RawMessage(part)
	}
	var file bytes.Buffer
	file.WriteByte('{')
	separator := ""
	for name, part := range raw {
		fmt.Fprintf(&file, "%s%q:%s", separator, name, part)
		separator = ","
	}
	file.WriteByte('}')
	return file.Bytes()
}

// templates is a post-processor whose templates have these sequences, all of type 0.
func templates(single, pair string) string {
	list := func(sequences string) string {
		var parts []string
		for _, name := range strings.Fields(sequences) {
			parts = append(parts, `{"Sequence":{"id":"`+name+`","type_id":0}}`)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return `{"type":"TemplateProcessing","single":` + list(single) + `,"pair":` + list(pair) + `,"special_tokens":{}}`
}

// What a file has and the package does not know is refused, with the field's name.
func TestBadFiles(t *testing.T) {
	model := func(rest string) string {
		return `{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##","max_input_chars_per_word":9,` + rest + `}`
	}
	for _, c := range []struct{ field, value, want string }{
		{"extra", "1", "tokenizer.extra: the field is unknown"},
		{"version", `"2.0"`, "tokenizer.version"},
		{"normalizer", `{"type":"Magic"}`, `normalizer.type: the normalizer "Magic" is not supported`},
		{"normalizer", `{"type":"NFC","more":1}`, "normalizer.more: the field is unknown"},
		{"normalizer", `{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true}`, "normalizer.lowercase: it is missing"},
		{"normalizer", `{"type":"Precompiled","precompiled_charsmap":"AAAA"}`, "normalizer.precompiled_charsmap"},
		{"normalizer", `{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Y"}]}`, `normalizer.normalizers[1].type: the normalizer "Y"`},
		{"normalizer", strings.Repeat(`{"type":"Sequence","normalizers":[`, 100) + strings.Repeat("]}", 100), "nested deeper than 32"},
		{"normalizer", strings.Repeat(`[`, 20000) + strings.Repeat("]", 20000), "depth"},
		{"pre_tokenizer", `{"type":"UnicodeScripts"}`, "pre_tokenizer.type"},
		{"pre_tokenizer", `{"type":"Split","pattern":{"Regex":"(a)\\1"},"behavior":"Isolated","invert":false}`, `\1 is not supported`},
		{"pre_tokenizer", `{"type":"Split","pattern":{"String":"a"},"behavior":"Odd","invert":false}`, `pre_tokenizer.behavior: "Odd"`},
		{"pre_tokenizer", `{"type":"Metaspace","replacement":"__"}`, "pre_tokenizer.replacement"},
		{"post_processor", `{"type":"BertProcessing","sep":["s",99],"cls":["c",1]}`, "post_processor: it adds the id 99"},
		{"post_processor", `{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x","type_id":0}}],"pair":[],"special_tokens":{}}`, "post_processor.single"},
		{"post_processor", templates("A A", "A B"), "post_processor.single: it must have the sequence A once"},
		{"post_processor", templates("", "A B"), "post_processor.single: it must have the sequence A once"},
		{"post_processor", templates("A", "A A B"), "post_processor.pair: it must have each of the sequences"},
		{"post_processor", `{"type":"Sequence","processors":[` + templates("A", "B A") + "," + templates("A", "B A") + "]}",
			"post_processor.processors: more than one"},
		{"model", "null", "tokenizer.model: it is missing"},
		{"model", model(`"vocab":{"a":null}`), `model.vocab: the token "a" has no id`},
		{"model", `{"vocab":{}}`, "model.type: it is missing"},
		{"model", `{"type":"WordLevel"}`, `"WordLevel" is not supported`},
		{"model", model(`"vocab":{"a":99999999999999999999}`), "model.vocab"},
		{"model", model(`"vocab":{"a":-1}`), "model.vocab"},
		{"model", model(`"vocab":{"a":4294967295}`), "model.vocab"},
		{"model", model(`"vocab":{"a":1.5}`), "model.vocab"},
		{"model", model(`"vocab":[]`), "model.vocab"},
		{"model", model(`"vocab":{},"Vocab":{}`), "model.Vocab: the field is unknown"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":["a b"]}`, "model.merges"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":["a"]}`, "model.merges"},
		{"model", `{"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1}`, "model.dropout"},
		{"model", `{"type":"Unigram","vocab":[["a"]]}`, "model.vocab"},
		{"model", `{"type":"Unigram","vocab":[["a",0]],"unk_id":1}`, "model.unk_id"},
		{"added_tokens", `[{"id":7,"content":"[X]","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}]`, "tokenizer.added_tokens[0].id"},
		{"added_tokens", `[{"id":3}]`, "tokenizer.added_tokens[0].content: it is missing"},
		{"truncation", `{"max_length":0,"strategy":"LongestFirst","stride":0,"direction":"Right"}`, "truncation.max_length"},
	} {
		if _, err := New(small(c.field, c.value), Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %.80s: %v, want %q", c.field, c.value, err, c.want)
		}
	}
	for _, file := range []string{"", "null", "[]", "{", `{"a":"` + "\xff" + `"}`, `{"a":"\ud800"}`, `{"a":"\udc00"}`, `{"a":"\ud800\u0041"}`} {
		if _, err := New([]byte(file), Options{}); err == nil {
			t.Errorf("%q is accepted", file)
		}
	}
}

// A vocabulary with a hole has ids above the number of its tokens.
func TestHole(t *testing.T) {
	file := small("model", `{"type":"WordPiece","unk_token":"u","continuing_subword_prefix":"##","max_input_chars_per_word":9,"vocab":{"u":0,"a":7}}`)
	tokenizer, err := New(file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := tokenizer.Encode("a b", Unlimited); err != nil || !slices.Equal(e.IDs, []int32{7, 0}) || tokenizer.Size() != 8 {
		t.Errorf("%v %v, size %d", e, err, tokenizer.Size())
	}
}

// Special tokens in a text are text unless they are asked for.
func TestSpecialTokensAreText(t *testing.T) {
	for _, name := range []string{"wordpiece", "wordpiece-added", "bpe-bytes", "bpe-ignore-merges", "unigram", "unigram-fallback"} {
		asked, plain := named(t, name, Options{SpecialTokens: true}), named(t, name, Options{})
		begin, _ := plain.Encode("", Unlimited)
		for _, word := range []string{"[CLS]", "[SEP]", "<s>", "</s>", "[MASK]"} {
			id, ok := plain.ID(word)
			if !ok {
				t.Fatal(word)
			}
			count := func(tokenizer *Tokenizer) int {
				e, err := tokenizer.Encode("a "+word+" "+word+"b", Unlimited)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, got := range e.IDs {
					if got == id {
						n++
					}
				}
				for _, got := range begin.IDs {
					if got == id {
						n--
					}
				}
				return n
			}
			if n := count(plain); n != 0 {
				t.Errorf("%s: %s is interpreted %d times", name, word, n)
			}
			if n := count(asked); n == 0 {
				t.Errorf("%s: %s is not interpreted", name, word)
			}
		}
	}
}

// Each byte that is not UTF-8 is U+FFFD.
func TestInvalidUTF8(t *testing.T) {
	tokenizer := named(t, "bpe-bytes", Options{})
	for text, same := range map[string]string{"a\xffb": "a\ufffdb", "\xed\xa0\x80": "\ufffd\ufffd\ufffd", "\xe2\x82": "\ufffd\ufffd"} {
		got, err := tokenizer.Encode(text, Unlimited)
		want, _ := tokenizer.Encode(same, Unlimited)
		if err != nil || !slices.Equal(got.IDs, want.IDs) {
			t.Errorf("%q: %v %v, want %v", text, got.IDs, err, want.IDs)
		}
	}
}

func TestMaximum(t *testing.T) {
	tokenizer := named(t, "wordpiece", Options{})
	for max, ok := range map[int]bool{1: false, -2: false, 2: true, 3: true, Unlimited: true, AsFile: true} {
		if e, err := tokenizer.Encode("a b c", max); (err == nil) != ok || max > 0 && len(e.IDs) > max {
			t.Errorf("at most %d: %v %v", max, e, err)
		}
	}
	if e, _ := tokenizer.Encode("a b c d e f", 4); !e.Truncated || len(e.IDs) != 4 {
		t.Errorf("%+v", e)
	}
	if e, _ := tokenizer.Encode("", 4); e.Truncated || len(e.IDs) != 2 {
		t.Errorf("%+v", e)
	}
}

// Texts of 512 KB on which algorithms differ: with a square of the length, one would take hours.
func TestLongTextsAreLinear(t *testing.T) {
	for _, name := range []string{"wordpiece", "bpe-bytes", "bpe-long-words", "bpe-ignore-merges", "unigram", "unigram-fallback"} {
		tokenizer := named(t, name, Options{})
		for _, unit := range []string{"a", "the words ", " ", "\n", "e\u0301\u0323", "中", "\u0301", "<[", "a1'"} {
			if e, err := tokenizer.Encode(strings.Repeat(unit, (1<<19)/len(unit)), Unlimited); err != nil || len(e.IDs) == 0 && name != "bpe-long-words" {
				t.Errorf("%s, %q: %d ids, %v", name, unit, len(e.IDs), err)
			}
		}
	}
}

// A heap and a scan merge the same.
func TestMergesAgree(t *testing.T) {
	m := named(t, "bpe-bytes", Options{}).words.model.(*bpe)
	random := rand.New(rand.NewPCG(1, 2))
	ids := slices.Sorted(func(yield func(int32) bool) {
		for _, id := range m.ids {
			if !yield(id) {
				return
			}
		}
	})
	for range 2000 {
		word := make([]int32, 1+random.IntN(maxScanned))
		for i := range word {
			word[i] = ids[random.IntN(60)]
		}
		if a, b := m.mergeShort(slices.Clone(word)), m.mergeLong(slices.Clone(word)); !slices.Equal(a, b) {
			t.Fatalf("%v: %v and %v", word, a, b)
		}
	}
}

func TestConcurrent(t *testing.T) {
	for _, name := range []string{"wordpiece-added", "bpe-bytes", "unigram"} {
		tokenizer := named(t, name, Options{})
		texts := make([]string, 200)
		want := make([]Encoding, len(texts))
		for i := range texts {
			texts[i] = strings.Repeat(fmt.Sprintf("word%d café 東 ", i*i), 1+i%5)
			want[i], _ = tokenizer.Encode(texts[i], 64)
		}
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for i, text := range texts {
					if got, err := tokenizer.Encode(text, 64); err != nil || !slices.Equal(got.IDs, want[i].IDs) {
						t.Errorf("%s: %v %v", name, got, err)
					}
				}
			})
		}
		group.Wait()
	}
}

// No text ends in a panic, and all ids are below the size.
func FuzzEncode(f *testing.F) {
	var all []*Tokenizer
	for _, r := range table(f) {
		tokenizer, err := New(r.file, Options{})
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, tokenizer)
	}
	for _, text := range []string{"", "a\x00b", "[CLS] é中\xff", "'s 123\n\n x", "\u0301\u0345"} {
		f.Add(text, text, 7)
	}
	f.Fuzz(func(t *testing.T, a, b string, max int) {
		for _, tokenizer := range all {
			e, err := tokenizer.EncodePair(a, b, max)
			if single, errSingle := tokenizer.Encode(a, Unlimited); errSingle == nil {
				e.IDs = append(e.IDs, single.IDs...)
			}
			for _, id := range e.IDs {
				if id < 0 || int(id) >= tokenizer.Size() {
					t.Fatalf("the id %d, of %d", id, tokenizer.Size())
				}
			}
			if err == nil && max > 0 && len(e.TypeIDs) > max {
				t.Fatalf("%d ids, at most %d", len(e.TypeIDs), max)
			}
		}
	})
}

// No file ends in a panic.
func FuzzNew(f *testing.F) {
	for _, r := range table(f) {
		if len(r.file) < 1<<14 {
			f.Add([]byte(r.file))
		}
	}
	f.Add(small("version", `"1.0"`))
	f.Fuzz(func(t *testing.T, file []byte) {
		if tokenizer, err := New(file, Options{SpecialTokens: true}); err == nil {
			_, _ = tokenizer.Encode("a text, 1 <s> [CLS] é", 9)
		}
	})
}

// Tokens a second, as many goroutines as -cpu says.
func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"wordpiece", "bpe-bytes", "unigram"} {
		b.Run(name, func(b *testing.B) {
			tokenizer := named(b, name, Options{})
			text := strings.Repeat("A function states an objective; requests are batched so that each is answered in time. ", 6)
			e, err := tokenizer.Encode(text, Unlimited)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					_, _ = tokenizer.Encode(text, Unlimited)
				}
			})
			b.ReportMetric(float64(b.N)*float64(len(e.IDs))/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
