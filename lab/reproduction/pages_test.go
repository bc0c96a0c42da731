package reproduction

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	row     = regexp.MustCompile("(?m)^\\| [0-9]+ \\| ([^|]*) \\| `([^`]*)` \\| ([^ |]+)[^|]* \\| ([^ |]+)[^|]* \\| [^|]* \\| ([^|]*) \\|$")
	drawing = regexp.MustCompile(`!\[[^\]]*\]\(([^)]*\.svg)\)`)
)

// largest is the maximum size of a drawing in docs/reproduction, in bytes.
const largest = 256 << 10

// The pages in docs/reproduction are what the command prints: their verdicts follow from their
// values by the present rules, they name the present commands, and their drawings are SVG.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "reproduction", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are no pages: %v", err)
	}
	for _, name := range pages {
		s, err := ByName(strings.TrimSuffix(filepath.Base(name), ".md"))
		if err != nil {
			t.Error(err)
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rows := row.FindAllStringSubmatch(string(text), -1)
		if len(rows) == 0 {
			t.Errorf("%s has no claims", name)
		}
		for _, m := range rows {
			paper, err := strconv.ParseFloat(m[3], 64)
			here, bad := strconv.ParseFloat(m[4], 64)
			if err = errors.Join(err, bad); err != nil {
				t.Errorf("%s: %s: %v", name, m[2], err)
				continue
			}
			found := false
			for _, r := range s.rules {
				if r.matches(m[2]) {
					found = r.verdict(r.holds(here, paper)) == m[5]
					break
				}
			}
			if !found {
				t.Errorf("%s: %s has another verdict by the present rules; run faas-infer-lab reproduce %s --plot docs/reproduction", name, m[2], s.Name)
			}
		}
		for _, p := range s.parts {
			if !strings.Contains(string(text), "`"+p.command+"`") {
				t.Errorf("%s does not have %s", name, p.command)
			}
		}
		for _, m := range drawing.FindAllStringSubmatch(string(text), -1) {
			checkDrawing(t, filepath.Join(filepath.Dir(name), m[1]))
		}
	}
}

// checkDrawing checks that a file is a small SVG.
func checkDrawing(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	if len(text) > largest {
		t.Errorf("%s has %d bytes, more than %d", name, len(text), largest)
	}
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
	}
}
