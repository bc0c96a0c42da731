package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	for range 2 { // A later version replaces the pages.
		if _, err := execute(t, "man", dir); err != nil {
			t.Fatal(err)
		}
	}
	for page, want := range map[string]string{"faas-infer": "SEE ALSO", "faas-infer-up": "nats-listen", "faas-infer-model-check": "slo", "faas-infer-async-replay": "all"} {
		text, err := os.ReadFile(filepath.Join(dir, page+".1"))
		if err != nil || !strings.HasPrefix(string(text), ".nh\n.TH") || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v\n%.300s", page, err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "faas-infer-redirect.1")); err == nil {
		t.Error("a hidden command has a page")
	}
	if _, err := execute(t, "man", "/proc/none"); err == nil {
		t.Error("it wrote where nothing can be written")
	}
}
