package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The error for invalid vectors names their file and field.
func TestBatchModelRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vectors.json")
	if err := os.WriteFile(file, []byte(`[{"Name": "x", "D0": [[-1]], "D1": [[1]], "B": 2, "T": 1, "S": [1]}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{file: `vector 1, "x": S has 1 times`, file + ".absent": "no such file"} {
		c := newBatchModelCommand()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs([]string{"--vectors", args})
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
