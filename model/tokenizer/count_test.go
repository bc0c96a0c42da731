package tokenizer

import "testing"

// The count of a text is that of its ids, up to the maximum.
func FuzzCount(f *testing.F) {
	var all []*Tokenizer
	for _, r := range table(f) {
		tokenizer, err := New(r.file, Options{})
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, tokenizer)
	}
	for _, text := range []string{"", "a small dog, [SEP] and 42 cats", " \t ", "ﬃ é́ 漢字 \xff", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"} {
		f.Add(text, uint8(9))
	}
	f.Fuzz(func(t *testing.T, text string, limit uint8) {
		for i, tokenizer := range all {
			e, err := tokenizer.Encode(text, Unlimited)
			got, failed := tokenizer.Count(text, int(limit))
			if failed != nil && err == nil {
				t.Fatalf("tokenizer %d: %q: %v", i, text, failed)
			}
			if want := min(len(e.IDs)-tokenizer.Added(false), int(limit)); failed == nil && err == nil && got != want {
				t.Errorf("tokenizer %d: %q has %d tokens, want %d of at most %d", i, text, got, want, limit)
			}
		}
	})
}
