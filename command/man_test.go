package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra/doc"
)

// Every command has a man page with all its flags, as scripts/man writes them.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if err := doc.GenManTree(NewRootCommand(), &doc.GenManHeader{Section: "1"}, dir); err != nil {
		t.Fatal(err)
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
}
