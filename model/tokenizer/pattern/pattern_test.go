package pattern

import (
	"slices"
	"strings"
	"testing"
)

func matches(t *testing.T, p *Pattern, text string) []string {
	t.Helper()
	found := []string{}
	for m := p.Match(text); ; {
		begin, end, ok, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return found
		}
		found = append(found, text[begin:end])
	}
}

// The package model/tokenizer compares many more patterns with Oniguruma's own matches.
func TestMatches(t *testing.T) {
	for _, c := range []struct {
		source, text string
		want         []string
	}{
		{`\s+(?!\S)|\s+`, "a   b\n", []string{"  ", " ", "\n"}},
		{`(?i:'s|'ll)`, "I'LL 'S", []string{"'LL", "'S"}},
		{`a*`, "baac", []string{"", "aa", ""}},
		{`(?:ab|a)c`, "abc ac", []string{"abc", "ac"}},
		{`[^\s\p{L}]+?x`, "12x", []string{"12x"}},
		{`a++a|b`, "aab", []string{"b"}},
		{`(?<=a)b`, "ab b", []string{"b"}},
		{`x{2}y{1,}z{,1}`, "xxyyz", []string{"xxyyz"}},
		{`a{x}`, "a{x}", []string{"a{x}"}},
	} {
		p, err := Compile(c.source)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
		} else if got := matches(t, p, c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s in %q: %q, want %q", c.source, c.text, got, c.want)
		}
	}
}

func TestRefused(t *testing.T) {
	for source, want := range map[string]string{
		`(a)\1`: `\1 is not supported`, `(`: "not closed", `)`: "unmatched", `[a`: "too early", `[[:alpha:]]`: "POSIX",
		`\p{Greek}`: "Greek", `(?:a*)*`: "may match nothing", `*a`: "nothing to repeat", `a{2}+`: "not supported",
		`(?<n>a)`: "(?<", `(?<=a|bc)d`: "look-behind", `\xzz`: "name a character", `a{5,2}`: "order",
		strings.Repeat("(", 1000): "nested", `(?:(?:ab){1000}){1000}`: "too large",
	} {
		if _, err := Compile(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", source, err, want)
		}
	}
}

// A pattern that tries all ways ends with an error, not in a century.
func TestStepsAreBounded(t *testing.T) {
	p, err := Compile(`(?:a+)+b`)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, ok, err := p.Match(strings.Repeat("a", 5000)).Next(); ok || err == nil {
		t.Errorf("%v %v", ok, err)
	}
}

func FuzzCompile(f *testing.F) {
	for _, source := range []string{`\s+(?!\S)|a{2,3}?`, `[^a-c&&[\p{Lu}]]+`, `(?i)(?>ab|c)*+$`, `(?<!x)\b`} {
		f.Add(source, "some text, 12\n")
	}
	f.Fuzz(func(t *testing.T, source, text string) {
		p, err := Compile(source)
		if err != nil {
			return
		}
		m, last := p.Match(text), 0
		for {
			begin, end, ok, err := m.Next()
			if !ok || err != nil {
				return
			}
			if begin < last || end < begin || end > len(text) {
				t.Fatalf("%q in %q: %d to %d, after %d", source, text, begin, end, last)
			}
			last = end
		}
	})
}
