package guide

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tests can parse the pages, and the index has all pages. The root's TestLinksInDocuments
// follows the links.
func TestPages(t *testing.T) {
	index := read(t, "../../docs/README.md")
	for _, pattern := range []string{"*.md", "kubernetes/*.md"} {
		files, err := filepath.Glob(filepath.Join("../../docs", pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("the guide has no pages %s: %v", pattern, err)
		}
		for _, file := range files {
			name, err := filepath.Rel("../../docs", file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Parse(read(t, file)); err != nil {
				t.Errorf("docs/%s: %v", name, err)
			}
			if name != "README.md" && !strings.Contains(index, "]("+name+")") {
				t.Errorf("docs/README.md does not lead to %s", name)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
