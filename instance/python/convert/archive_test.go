package convert

import (
	"archive/zip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// zeros reads as zeros without end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// An archive that is small and unpacks to much is refused before a converter reads it.
func TestArchivesThatGrowAreRefused(t *testing.T) {
	write := func(method uint16, bytes int64) string {
		path := filepath.Join(t.TempDir(), "model.keras")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := zip.NewWriter(f)
		for _, name := range []string{"metadata.json", "config.json", "model.weights.h5"} {
			part, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(part, zeros{}, bytes); err != nil {
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
	if kind, err := source(write(zip.Store, 40<<20)); kind != Keras || err != nil {
		t.Errorf("stored weights: %v, %v", kind, err)
	}
	if kind, err := source(write(zip.Deflate, 10<<20)); kind != Keras || err != nil {
		t.Errorf("a small model of zeros: %v, %v", kind, err)
	}
	if _, err := source(write(zip.Deflate, 100<<20)); err == nil || !strings.Contains(err.Error(), "without compression") {
		t.Errorf("a bomb: %v", err)
	}
}
