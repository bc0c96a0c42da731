package guide

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	fenced  = regexp.MustCompile("(?s)```.*?\n```")
)

// The tests can parse the pages, links lead to existing targets, and the index has all
// pages.
func TestPages(t *testing.T) {
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("the guide has no pages: %v", err)
	}
	index := read(t, "../../docs/README.md")
	for _, file := range files {
		name, text := filepath.Base(file), read(t, file)
		if _, err := Parse(text); err != nil {
			t.Errorf("docs/%s: %v", name, err)
		}
		if name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			target := filepath.Join(filepath.Dir(file), filepath.FromSlash(to))
			if to == "" {
				target = file
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("docs/%s links to %s: %v", name, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("docs/%s links to %s, and there is no such heading", name, m[1])
			}
		}
	}
}

// anchors returns the anchors of a page's headings.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
