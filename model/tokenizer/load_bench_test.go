package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// vocabularies are tokenizers by the number of their tokens: a WordPiece like BERT's and a Unigram like XLM-RoBERTa's.
func vocabularies(b *testing.B) map[string][]byte {
	words := func(n int) []string {
		random := rand.New(rand.NewPCG(1, 2))
		seen, all := map[string]bool{}, []string{}
		for len(all) < n {
			word := make([]byte, 2+random.IntN(9))
			for i := range word {
				word[i] = 'a' + byte(random.IntN(26))
			}
			if !seen[string(word)] {
				seen[string(word)] = true
				all = append(all, string(word))
			}
		}
		return all
	}
	ids, pieces := map[string]int{"[UNK]": 0}, [][2]any{{"<unk>", 0.0}}
	for i, w := range words(30_521) {
		ids[w] = i + 1
	}
	for i, w := range words(250_001) {
		pieces = append(pieces, [2]any{"▁" + w, -10 - float64(i)/1e5})
	}
	file := func(model any) []byte {
		text, err := json.MarshalIndent(map[string]any{"version": "1.0", "model": model}, "", "  ")
		if err != nil {
			b.Fatal(err)
		}
		return text
	}
	all := map[string][]byte{
		"wordpiece": file(map[string]any{"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
			"max_input_chars_per_word": 100, "vocab": ids}),
		"unigram": file(map[string]any{"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": false}),
	}
	if name := os.Getenv("FAAS_INFER_TOKENIZER"); name != "" {
		text, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		all[fmt.Sprintf("file of %d kB", len(text)>>10)] = text
	}
	return all
}

// An instance that starts reads its tokenizer.
func BenchmarkNew(b *testing.B) {
	for name, file := range vocabularies(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := New(file, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
