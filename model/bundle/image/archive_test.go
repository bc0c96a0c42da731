package image

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

func two(t *testing.T) (below, above v1.Image) {
	t.Helper()
	below, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	layer, err := random.Layer(500, types.OCILayer)
	if err != nil {
		t.Fatal(err)
	}
	if above, err = mutate.AppendLayers(below, layer); err != nil {
		t.Fatal(err)
	}
	return below, above
}

func TestWriteAndRead(t *testing.T) {
	below, above := two(t)
	path := filepath.Join(t.TempDir(), "images.tar")
	images := []Image{{"team/below:v1", below}, {"registry.example.com:5000/above", above}}
	if err := WriteFile(path, images...); err != nil {
		t.Fatal(err)
	}
	names := entries(t, path)
	blobs := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, "blobs/") })
	slices.Sort(blobs)
	if len(blobs) != 3+2*2 || len(slices.Compact(blobs)) != 7 {
		t.Errorf("blobs %q", blobs)
	}
	read, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"docker.io/team/below:v1", "registry.example.com:5000/above:latest"}
	for i, image := range read {
		if image.Name != want[i] {
			t.Errorf("name %q, want %q", image.Name, want[i])
		}
		if err := validate.Image(image); err != nil {
			t.Error(err)
		}
		before, _ := images[i].Digest()
		if after, err := image.Digest(); err != nil || after != before {
			t.Errorf("%s became %s, %v", before, after, err)
		}
	}
	// Docker's index has the same names.
	old, err := tarball.ImageFromPath(path, nil)
	if err == nil || old != nil {
		t.Error("two images are one for Docker")
	}
	if err := WriteFile(path, images[:1]...); err != nil {
		t.Fatal(err)
	}
	if old, err = tarball.ImageFromPath(path, nil); err != nil {
		t.Fatal(err)
	}
	before, _ := below.ConfigName()
	if after, err := old.ConfigName(); err != nil || after != before {
		t.Errorf("config %s became %s, %v", before, after, err)
	}
}

func TestSameImagesSameFile(t *testing.T) {
	below, _ := two(t)
	dir := t.TempDir()
	var texts [2]string
	for i := range texts {
		path := filepath.Join(dir, "a.tar")
		if err := WriteFile(path, Image{"a", below}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Error("the files differ")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	below, _ := two(t)
	if err := WriteFile(filepath.Join(dir, "a.tar"), Image{"Not A Name", below}); err == nil {
		t.Error("an image has no name")
	}
	if err := WriteFile(filepath.Join(dir, "absent", "a.tar"), Image{"a", below}); err == nil {
		t.Error("a file was written where there is no directory")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	whole := filepath.Join(dir, "whole.tar")
	if err := WriteFile(whole, Image{"a", below}); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(name string, text []byte) []byte{
		"no index": func(name string, text []byte) []byte { return drop(name == indexFile, text) },
		"no image": func(name string, text []byte) []byte { return replace(name == indexFile, text, `{"manifests":[]}`) },
		"no JSON":  func(name string, text []byte) []byte { return replace(name == indexFile, text, `{`) },
		"no blobs": func(name string, text []byte) []byte { return drop(strings.HasPrefix(name, "blobs/"), text) },
		"damaged blobs": func(name string, text []byte) []byte {
			return replace(json.Valid(text) && strings.HasPrefix(name, "blobs/"), text, "{}")
		},
	} {
		path := filepath.Join(dir, "edited.tar")
		edited(t, whole, path, edit)
		if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "absent.tar"), dir, "archive_test.go"} {
		if _, err := ReadFile(path); err == nil {
			t.Errorf("images were read from %s", path)
		}
	}
}

func drop(yes bool, text []byte) []byte {
	if yes {
		return nil
	}
	return text
}

func replace(yes bool, text []byte, by string) []byte {
	if yes {
		return []byte(by)
	}
	return text
}

// edited copies a tar. It leaves out a file for which edit returns nil.
func edited(t *testing.T, from, to string, edit func(name string, text []byte) []byte) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	r, w := tar.NewReader(in), tar.NewWriter(out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		text, err2 := io.ReadAll(r)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if text = edit(h.Name, text); text == nil {
			continue
		}
		h.Size = int64(len(text))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func entries(t *testing.T, path string) (names []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}
