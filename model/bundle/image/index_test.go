package image

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// forArchitecture makes an image for linux with one file.
func forArchitecture(t *testing.T, architecture string) v1.Image {
	t.Helper()
	layer, err := Layer([]Entry{Bytes("file", 0o644, []byte(architecture))})
	if err != nil {
		t.Fatal(err)
	}
	i, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	if i, err = mutate.ConfigFile(i, config); err != nil {
		t.Fatal(err)
	}
	return i
}

// An index that went through a file and a registry is the same, and each platform gets its own image.
func TestIndex(t *testing.T) {
	amd64, arm64 := forArchitecture(t, "amd64"), forArchitecture(t, "arm64")
	index, err := Index(arm64, amd64)
	if err != nil {
		t.Fatal(err)
	}
	want, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "index.tar")
	if err := WriteIndex(file, "registry.example.com/a:v1", arm64, amd64); err != nil {
		t.Fatal(err)
	}
	read, err := ReadFile(file)
	if err != nil || len(read) != 2 || read[0].Name != "registry.example.com/a:v1" || read[1].Name != read[0].Name {
		t.Fatalf("%+v, %v", read, err)
	}
	for _, architecture := range []string{"amd64", "arm64"} {
		i, err := OnPlatform(read, architecture)
		if err != nil {
			t.Fatal(err)
		}
		if config, err := i.ConfigFile(); err != nil || config.Architecture != architecture {
			t.Errorf("the image for %s: %+v, %v", architecture, config, err)
		}
	}
	if _, err := OnPlatform(read, "riscv64"); err == nil || !strings.Contains(err.Error(), "linux/riscv64") {
		t.Errorf("another platform: %v", err)
	}

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/a:v1"
	pushed, err := PushIndex(t.Context(), to, []v1.Image{read[1].Image, read[0].Image}, nil)
	if err != nil || !strings.HasSuffix(pushed, want.String()) {
		t.Fatalf("pushed %s, %v, want %s", pushed, err, want)
	}
	reference, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	there, err := remote.Index(reference)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := there.Digest(); err != nil || got != want {
		t.Errorf("the registry has %s, %v, want %s", got, err, want)
	}
}

// The order of the images does not change the file's index.
func TestIndexIsReproducible(t *testing.T) {
	amd64, arm64 := forArchitecture(t, "amd64"), forArchitecture(t, "arm64")
	var texts [][]byte
	for range 2 {
		file := filepath.Join(t.TempDir(), "index.tar")
		if err := WriteIndex(file, "a/b:c", amd64, arm64); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Error("two files of the same images differ")
	}
	one, err := Index(amd64, arm64)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Index(arm64, amd64)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := one.Digest()
	if b, _ := other.Digest(); a != b {
		t.Errorf("%s and %s in another order", a, b)
	}
	if _, err := Index(amd64, amd64); err == nil || !strings.Contains(err.Error(), "linux/amd64") {
		t.Errorf("one platform twice: %v", err)
	}
}
