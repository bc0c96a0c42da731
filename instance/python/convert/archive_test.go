package convert

import (
	"archive/zip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An archive that is small and unpacks to much is refused before a converter reads it: its directory says
// so. Zeros shrink to a thousandth.
func TestArchivesThatGrowAreRefused(t *testing.T) {
	write := func(method uint16, bytes, stored uint64) string {
		path := filepath.Join(t.TempDir(), "model.keras")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := zip.NewWriter(f)
		for _, name := range []string{"metadata.json", "config.json", "model.weights.h5"} {
			part, err := w.CreateRaw(&zip.FileHeader{Name: name, Method: method, UncompressedSize64: bytes, CompressedSize64: stored})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := part.Write(make([]byte, stored)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if kind, err := source(write(zip.Store, 40<<20, 40<<20)); kind != Keras || err != nil {
		t.Errorf("stored weights: %v, %v", kind, err)
	}
	if kind, err := source(write(zip.Deflate, 10<<20, 10<<10)); kind != Keras || err != nil {
		t.Errorf("a small model of zeros: %v, %v", kind, err)
	}
	if _, err := source(write(zip.Deflate, 100<<20, 100<<10)); err == nil || !strings.Contains(err.Error(), "without compression") {
		t.Errorf("a bomb: %v", err)
	}
}
