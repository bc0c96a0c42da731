package onnxruntime

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The library that is there already, by its own path, becomes that of an empty cache.
func TestInstall(t *testing.T) {
	if os.Getenv(LibraryEnv) != "" {
		t.Skip(LibraryEnv + " names another library")
	}
	there, err := LibraryPath()
	if err != nil {
		t.Fatal(err)
	}
	own, err := releaseFor(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(LibraryEnv, "")
	wrong := filepath.Join(t.TempDir(), WheelName(runtime.GOARCH))
	if err := os.WriteFile(wrong, []byte("no wheel"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(wrong, runtime.GOARCH); err == nil || !strings.Contains(err.Error(), own.wheelSum) {
		t.Errorf("a file with another sum: %v", err)
	}
	if _, err := Install(wrong+"x", runtime.GOARCH); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	got, err := Install(there, runtime.GOARCH)
	if want, _ := LibraryPath(); err != nil || got != want {
		t.Fatalf("%s, %v, want %s", got, err, want)
	}
	if files, err := os.ReadDir(filepath.Dir(got)); err != nil || len(files) != 1 {
		t.Errorf("it left %v, %v", files, err)
	}
	if err := writeLibrary(strings.NewReader("another library"), got, own.librarySum); err == nil || !strings.Contains(err.Error(), own.librarySum) {
		t.Errorf("another library: %v", err)
	}
	if _, err := Install(there, "riscv64"); err == nil || !strings.Contains(err.Error(), "amd64 and arm64 only, this is riscv64") {
		t.Errorf("another architecture: %v", err)
	}
	if other := otherThan(runtime.GOARCH); other != "" {
		if _, err := Install(there, other); err == nil || !strings.Contains(err.Error(), WheelName(other)) {
			t.Errorf("the library of %s as that of %s: %v", runtime.GOARCH, other, err)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(got)); err != nil || len(files) != 1 {
		t.Errorf("it left %v, %v", files, err)
	}
}

func otherThan(architecture string) string {
	for _, name := range Architectures() {
		if name != architecture {
			return name
		}
	}
	return ""
}

// A compressed tar has the library below a folder, beside links to it.
func TestInstallFromATar(t *testing.T) {
	if os.Getenv(LibraryEnv) != "" {
		t.Skip(LibraryEnv + " names another library")
	}
	there, err := LibraryPath()
	if err != nil {
		t.Fatal(err)
	}
	library, err := os.ReadFile(there)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(LibraryEnv, "")
	for name, c := range map[string]struct {
		file    string
		content []byte
		want    string
	}{
		"the library": {"onnxruntime-linux/lib/libonnxruntime.so." + LibraryVersion, library, ""},
		"another":     {"onnxruntime-linux/lib/libonnxruntime.so." + LibraryVersion, []byte("another"), "instead of"},
		"none":        {"onnxruntime-linux/README", []byte("text"), "or a .tgz with that"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Install(tgz(t, c.file, c.content), runtime.GOARCH)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s, %v", got, err)
				}
				return
			}
			if want, _ := LibraryPath(); err != nil || got != want {
				t.Errorf("%s, %v, want %s", got, err, want)
			}
		})
	}
	cut := tgz(t, "lib/libonnxruntime.so", library)
	if err := os.Truncate(cut, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(cut, runtime.GOARCH); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a tar that was cut off: %v", err)
	}
}

// tgz writes a compressed tar with a link to a file and the file.
func tgz(t *testing.T, name string, content []byte) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "onnxruntime.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	packed, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	tape := tar.NewWriter(packed)
	link := tar.Header{Typeflag: tar.TypeSymlink, Name: "onnxruntime-linux/lib/libonnxruntime.so", Linkname: path.Base(name)}
	err = tape.WriteHeader(&link)
	if err == nil {
		err = tape.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o755})
	}
	if err == nil {
		_, err = tape.Write(content)
	}
	if err := errors.Join(err, tape.Close(), packed.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

func TestFetchRefuses(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	wheelName := WheelName("arm64")
	page := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/simple/onnxruntime/":
			w.Write([]byte(page))
		case "/files/" + wheelName:
			w.Write([]byte("not the wheel"))
		case "/broken/" + wheelName:
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("not the wheel"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for text, want := range map[string]string{
		`<a href="../../files/` + wheelName + `#sha256=1">wheel</a>`: "it must be " + wheelName,
		`{"files":[{"url":"/files/` + wheelName + `"}]}`:             "it must be " + wheelName,
		`<a href="/gone/` + wheelName + `">wheel</a>`:                "answers 404",
		`<a href="/broken/` + wheelName + `">wheel</a>`:              "broke off after 13 bytes",
		"<a href=\"/files/onnxruntime-0.1.whl\">":                    "has no " + wheelName,
	} {
		page = text
		if _, err := Fetch(t.Context(), s.URL+"/simple/", "arm64", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Fetch(t.Context(), "http://127.0.0.1:1/simple", "arm64", nil); !errors.Is(err, ErrNoNetwork) {
		t.Errorf("nobody listens: %v", err)
	}
	for _, dir := range []string{os.TempDir(), os.Getenv("XDG_CACHE_HOME")} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("it left %v, %v", left, err)
		}
	}
}
