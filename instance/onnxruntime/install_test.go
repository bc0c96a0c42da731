package onnxruntime

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(LibraryEnv, "")
	wrong := filepath.Join(t.TempDir(), wheelName)
	if err := os.WriteFile(wrong, []byte("no wheel"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(wrong); err == nil || !strings.Contains(err.Error(), wheelSum) {
		t.Errorf("a file with another sum: %v", err)
	}
	if _, err := Install(wrong + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	got, err := Install(there)
	if want, _ := LibraryPath(); err != nil || got != want {
		t.Fatalf("%s, %v, want %s", got, err, want)
	}
	if files, err := os.ReadDir(filepath.Dir(got)); err != nil || len(files) != 1 {
		t.Errorf("it left %v, %v", files, err)
	}
	if err := writeLibrary(strings.NewReader("another library"), got); err == nil || !strings.Contains(err.Error(), librarySum) {
		t.Errorf("another library: %v", err)
	}
	if files, err := os.ReadDir(filepath.Dir(got)); err != nil || len(files) != 1 {
		t.Errorf("it left %v, %v", files, err)
	}
}

func TestFetchRefuses(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
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
		if _, err := Fetch(t.Context(), s.URL+"/simple/", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := Fetch(t.Context(), "http://127.0.0.1:1/simple", nil); !errors.Is(err, ErrNoNetwork) {
		t.Errorf("nobody listens: %v", err)
	}
	for _, dir := range []string{os.TempDir(), os.Getenv("XDG_CACHE_HOME")} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("it left %v, %v", left, err)
		}
	}
}
