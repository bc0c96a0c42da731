package text

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/model/tokenizer"
)

const (
	// tokenisers is the number of threads that read texts, rounds how often they read them all.
	tokenisers, rounds = 2, 5
)

// tokenise compares the tokens per second of the provider's tokenizer with those of Python's
// tokenizers, on the whole corpus.
func (u *run) tokenise(ctx context.Context) error {
	fmt.Fprintln(u.o.Log, "tokenising the corpus")
	dir, err := folders[0].make(ctx, u.python[engines], u.o.Log)
	if err != nil {
		return err
	}
	in := filepath.Join(u.dir, "whole.json")
	if err := writeJSON(in, u.corpus.whole); err != nil {
		return err
	}
	said, err := python(ctx, u.python[engines], "tokenise.py", []string{"RAYON_NUM_THREADS=" + strconv.Itoa(tokenisers)},
		filepath.Join(dir, "tokenizer.json"), in, strconv.Itoa(rounds))
	if err != nil {
		return err
	}
	var theirs struct {
		Rate float64
		Sums []uint32
	}
	if err := json.Unmarshal([]byte(said), &theirs); err != nil {
		return fmt.Errorf("tokenise.py: %w", err)
	}
	t, err := readTokenizer(dir)
	if err != nil {
		return err
	}
	unequal, err := differing(t, u.corpus.whole, theirs.Sums)
	if err != nil {
		return err
	}
	ours := 0.0
	for range rounds {
		rate, err := tokensPerSecond(t, u.corpus.whole)
		if err != nil {
			return err
		}
		ours = max(ours, rate)
	}
	u.r.Add("tokenise.ours", ours, "tokens/s", fmt.Sprintf("%d texts, %d threads, best of %d", len(u.corpus.whole), tokenisers, rounds))
	u.r.Add("tokenise.python", theirs.Rate, "tokens/s", "tokenizers, encode_batch_fast")
	u.r.Add("tokenise.ratio", ours/theirs.Rate, "ratio", "aim >= 1")
	u.r.Add("tokenise.different", float64(unequal), "texts", "have other ids than with tokenizers; aim 0")
	return nil
}

// differing is the number of texts whose ids have another checksum than Python's.
func differing(t *tokenizer.Tokenizer, texts []string, sums []uint32) (n int, err error) {
	if len(sums) != len(texts) {
		return 0, fmt.Errorf("tokenise.py has read %d of %d texts", len(sums), len(texts))
	}
	var raw []byte
	for i, text := range texts {
		e, err := t.Encode(text, tokenizer.Unlimited)
		if err != nil {
			return 0, err
		}
		raw = raw[:0]
		for _, id := range e.IDs {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
		}
		if crc32.ChecksumIEEE(raw) != sums[i] {
			n++
		}
	}
	return n, nil
}

// tokensPerSecond reads all texts once.
func tokensPerSecond(t *tokenizer.Tokenizer, texts []string) (float64, error) {
	var next, tokens atomic.Int64
	var failed [tokenisers]error
	var all sync.WaitGroup
	const part = 64
	began := time.Now()
	for i := range tokenisers {
		all.Go(func() {
			for {
				from := int(next.Add(part)) - part
				if from >= len(texts) {
					return
				}
				for _, text := range texts[from:min(from+part, len(texts))] {
					n, err := count(t, text)
					if err != nil {
						failed[i] = err
						return
					}
					tokens.Add(int64(n))
				}
			}
		})
	}
	all.Wait()
	return float64(tokens.Load()) / time.Since(began).Seconds(), errors.Join(failed[:]...)
}
