package bundle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReadLabels(t *testing.T) {
	dir := t.TempDir()
	if labels, err := ReadLabels(dir); labels != nil || err != nil {
		t.Errorf("without a file: %q, %v", labels, err)
	}
	path := filepath.Join(dir, LabelsFile)
	if err := os.WriteFile(path, []byte("tabby cat\r\n\n dog \xff\nlast"), 0o644); err != nil {
		t.Fatal(err)
	}
	if labels, err := ReadLabels(dir); err != nil || !slices.Equal(labels, []string{"tabby cat", "", "dog \uFFFD", "last"}) {
		t.Errorf("%q, %v", labels, err)
	}
	if err := os.Truncate(path, maxLabels+1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadLabels(dir); err == nil || !strings.Contains(err.Error(), "at most 16 MiB") {
		t.Errorf("too large: %v", err)
	}
}

// TestWriteFileKeepsLabels checks that a bundle has the names of the classes that lie beside its model.
func TestWriteFileKeepsLabels(t *testing.T) {
	from, root := t.TempDir(), t.TempDir()
	file := filepath.Join(from, "pets.onnx")
	if err := identity(t).WriteFile(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, LabelsFile), []byte("cat\ndog\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := WriteFile(root, "pets", Manifest{Name: "pets"}, file)
	if err != nil {
		t.Fatal(err)
	}
	if labels, err := ReadLabels(b.Dir); err != nil || !slices.Equal(labels, []string{"cat", "dog"}) {
		t.Errorf("%q, %v", labels, err)
	}
}
