package fetch_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/model/source/fetch"
	"github.com/faas-infer/faas-infer/model/source/origin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// random is content that no archive begins with. The package does not read models.
func random(size int) []byte {
	content := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(content)
	content[0] = 8
	return content
}

func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// open returns a cache that takes models from this machine.
func open(t *testing.T, change func(*fetch.Options)) *fetch.Cache {
	t.Helper()
	sources, err := origin.ParseSources([]string{"127.0.0.1", "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	o := fetch.Options{Dir: t.TempDir(), MaxBytes: 1 << 30, Sources: sources}
	if change != nil {
		change(&o)
	}
	c := fetch.Open(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func parse(t *testing.T, text string) source.URI {
	t.Helper()
	u, err := source.Parse(text)
	if err != nil {
		t.Fatal(text, err)
	}
	return u
}

func mustFetch(t *testing.T, c *fetch.Cache, uri string) fetch.Entry {
	t.Helper()
	e, err := c.Fetch(t.Context(), parse(t, uri), origin.Credentials{}, nil)
	if err != nil {
		t.Fatalf("%s: %v", uri, err)
	}
	return e
}

func refuses(t *testing.T, c *fetch.Cache, uri, part string) {
	t.Helper()
	e, err := c.Fetch(t.Context(), parse(t, uri), origin.Credentials{}, nil)
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("%s: %v, %v; want an error with %q", uri, e, err, part)
	}
}

func hasModel(t *testing.T, e fetch.Entry, content []byte) {
	t.Helper()
	b, err := bundle.OpenDir(e.Dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(b.ModelPath())
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the model has %d bytes, %v; want %d", len(got), err, len(content))
	}
}

// TestOneDownload: many who want a model share one download, and a URI without a hash is asked for by its ETag.
func TestOneDownload(t *testing.T) {
	content, requests := random(3<<20), atomic.Int32{}
	state := atomic.Value{}
	state.Store(content)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		now := state.Load().([]byte)
		w.Header().Set("ETag", `"`+sumOf(now)[:8]+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(now))
	}))
	defer s.Close()
	var hashed []string
	c := open(t, func(o *fetch.Options) {
		o.Hashed = func(file, hash string) { hashed = append(hashed, file+" "+hash) }
	})
	uri := s.URL + "/model.onnx"
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			var p fetch.Progress
			if _, err := c.Fetch(t.Context(), parse(t, uri+"#sha256="+sumOf(content)), origin.Credentials{}, &p); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests for one model", n)
	}
	first := mustFetch(t, c, uri)
	hasModel(t, first, content)
	if again := mustFetch(t, c, uri); again != first {
		t.Errorf("unchanged content is %v, then %v", first, again)
	}
	state.Store(random(2 << 20))
	changed := mustFetch(t, c, uri)
	if changed == first {
		t.Error("changed content is not downloaded")
	}
	hasModel(t, changed, random(2<<20))
	hasModel(t, first, content)
	want := []string{first.Dir + "/model.onnx " + sumOf(content), changed.Dir + "/model.onnx " + sumOf(random(2<<20))}
	if !slices.Equal(hashed, slices.Insert(want, 1, want[0])) { // By its hash, then by its tag.
		t.Errorf("hashes %v, want %v", hashed, want)
	}
}

// breaking serves content and breaks each connection after so many bytes.
func breaking(content []byte, each int, tag string, requests *atomic.Int32, sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		from := 0
		if at := r.Header.Get("Range"); at != "" && r.Header.Get("If-Range") == tag {
			_, _ = fmt.Sscanf(at, "bytes=%d-", &from)
		}
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Length", fmt.Sprint(len(content)-from))
		if from > 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
			w.WriteHeader(http.StatusPartialContent)
		}
		n, _ := w.Write(content[from:min(len(content), from+each)])
		sent.Add(int64(n))
	}
}

// TestGoesOn: a download goes on where it broke, also in a later process.
func TestGoesOn(t *testing.T) {
	content := random(8<<20 + 17)
	var requests atomic.Int32
	var sent atomic.Int64
	s := httptest.NewServer(breaking(content, 3<<20, `"v1"`, &requests, &sent))
	defer s.Close()
	dir := t.TempDir()
	c := open(t, func(o *fetch.Options) { o.Dir = dir })
	hasModel(t, mustFetch(t, c, s.URL+"/model.onnx"), content)
	if requests.Load() != 3 || sent.Load() != int64(len(content)) {
		t.Errorf("%d requests and %d bytes for %d", requests.Load(), sent.Load(), len(content))
	}

	// A process that ends midway leaves what it has.
	sent.Store(0)
	stuck := make(chan struct{})
	half := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v2"`)
		if r.Header.Get("If-Range") == `"v2"` {
			breaking(content, len(content), `"v2"`, &requests, &sent)(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:4<<20])
		w.(http.Flusher).Flush()
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	}))
	defer half.Close()
	ctx, cancel := context.WithCancel(t.Context())
	uri := parse(t, half.URL+"/model.onnx")
	var p fetch.Progress
	ended := make(chan error)
	go func() {
		_, err := c.Fetch(ctx, uri, origin.Credentials{}, &p)
		ended <- err
	}()
	for done := int64(0); done < 4<<20; done, _ = p.Bytes() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(stuck)
	later := open(t, func(o *fetch.Options) { o.Dir = dir })
	if e, err := later.Fetch(t.Context(), uri, origin.Credentials{}, &p); err != nil {
		t.Error(err)
	} else {
		hasModel(t, e, content)
	}
	if sent.Load() != int64(len(content)-4<<20) {
		t.Errorf("the later process downloads %d bytes, want the missing %d", sent.Load(), len(content)-4<<20)
	}
}

// TestRefusals: what cannot be used is refused with a sentence, and nothing of it is in the cache.
func TestRefusals(t *testing.T) {
	content := random(1 << 20)
	stop := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/model.onnx", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "9000000000000")
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(content); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/stalls", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write(content[:10])
		w.(http.Flusher).Flush()
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("/round/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) })
	mux.HandleFunc("/private", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
	})
	mux.HandleFunc("/page.onnx", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	mux.HandleFunc("/weights.zip", func(w http.ResponseWriter, _ *http.Request) {
		z := zip.NewWriter(w)
		f, _ := z.Create("../model.onnx")
		_, _ = f.Write(content)
		_ = z.Close()
	})
	mux.HandleFunc("/server.zip", func(w http.ResponseWriter, _ *http.Request) {
		z := zip.NewWriter(w)
		f, _ := z.Create("bundle.yaml")
		_, _ = f.Write([]byte("engine: mlserver\nmodel: m\n"))
		f, _ = z.Create("m/model-settings.json")
		_, _ = f.Write([]byte("{}"))
		_ = z.Close()
	})
	mux.HandleFunc("/other.zip", func(w http.ResponseWriter, _ *http.Request) {
		z := zip.NewWriter(w)
		_, _ = z.Create("docs/readme.txt")
		_, _ = z.Create("docs/photo.jpg")
		_ = z.Close()
	})
	mux.HandleFunc("/program.zip", func(w http.ResponseWriter, _ *http.Request) {
		z := zip.NewWriter(w)
		f, _ := z.Create("bundle.yaml")
		_, _ = f.Write([]byte("process: cat\nmode: classic\n"))
		_ = z.Close()
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	defer close(stop)
	c := open(t, func(o *fetch.Options) { o.Stall = 200 * time.Millisecond; o.MaxBytes = 64 << 20 })
	for path, part := range map[string]string{
		"/model.onnx#sha256=" + sumOf(nil): "SHA-256 " + sumOf(content),
		"/large":                           "--models-size",
		"/endless":                         "--models-size",
		"/stalls":                          "sent nothing for 200ms",
		"/round/":                          "",
		"/round/x":                         "more than 3 times",
		"/private":                         "169.254.169.254",
		"/page.onnx":                       "model-token",
		"/absent.onnx":                     "no such file",
		"/weights.zip":                     "leads out",
		"/program.zip":                     "data only",
		"/other.zip":                       "2 files: photo.jpg, readme.txt",
		"/server.zip":                      `the engine "mlserver"`,
	} {
		if part != "" {
			refuses(t, c, s.URL+path, part)
		}
	}
	refuses(t, c, "pvc://models/m.onnx", "Kubernetes")
	refuses(t, c, "http://models.example.com/m.onnx", "#sha256=")
	closed := fetch.Open(fetch.Options{Dir: t.TempDir(), MaxBytes: 1 << 30})
	defer closed.Close()
	refuses(t, closed, s.URL+"/model.onnx#sha256="+sumOf(content), "not public")
	refuses(t, closed, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)+"/model.onnx#sha256="+sumOf(content), "not public")
	refuses(t, closed, "file:///etc/passwd", "it allows none")
}

// TestFullDisk: what the disk cannot hold is refused before it is downloaded.
func TestFullDisk(t *testing.T) {
	sent := atomic.Bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "900000000000000")
		if _, err := w.Write(make([]byte, 1<<20)); err == nil {
			sent.Store(true)
		}
	}))
	defer s.Close()
	c := open(t, func(o *fetch.Options) { o.MaxBytes = 1 << 60 })
	refuses(t, c, s.URL+"/m.onnx", "free")
}

// TestEviction: the cache keeps what is in use, and evicts the least recently used rest.
func TestEviction(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d.onnx", &n)
		content := random(4 << 20)
		content[1] = byte(n)
		_, _ = w.Write(content)
	}))
	defer s.Close()
	dir, used, spare := t.TempDir(), []string{}, []string{}
	c := open(t, func(o *fetch.Options) {
		o.Dir, o.MaxBytes, o.InUse = dir, 10<<20, func() (_, _ []string) { return used, spare }
	})
	first, second := mustFetch(t, c, s.URL+"/1.onnx"), mustFetch(t, c, s.URL+"/2.onnx")
	used = []string{first.Name}
	old := time.Now().Add(-time.Hour)
	for _, e := range []fetch.Entry{first, second} {
		if err := os.Chtimes(e.Dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	third := mustFetch(t, c, s.URL+"/3.onnx")
	if _, ok := c.Entry(first.Name); !ok {
		t.Error("the entry in use was evicted")
	}
	if _, ok := c.Entry(second.Name); ok {
		t.Error("the unused entry stays")
	}
	used = []string{first.Name, third.Name}
	refuses(t, c, s.URL+"/4.onnx", "--models-size")

	// What can be spared goes in its order, however lately it was used, and not what is needed, too.
	used, spare = []string{third.Name}, []string{third.Name, first.Name}
	fourth := mustFetch(t, c, s.URL+"/4.onnx")
	if _, ok := c.Entry(first.Name); ok {
		t.Error("an entry that can be spared stays")
	}
	for _, e := range []fetch.Entry{third, fourth} {
		if _, ok := c.Entry(e.Name); !ok {
			t.Error("an entry that is needed, or new, is gone")
		}
	}
}

// TestArchives: an archive becomes a bundle, whatever folder is around its files.
func TestArchives(t *testing.T) {
	content := random(1 << 16)
	files := map[string][]byte{"folder/net.onnx": content, "folder/net.onnx.data": content[:99], "folder/labels.txt": []byte("a\nb\n")}
	var zipped, tarred bytes.Buffer
	z, packed := zip.NewWriter(&zipped), gzip.NewWriter(&tarred)
	tape := tar.NewWriter(packed)
	for name, data := range files {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write(data)
		if err := tape.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		_, _ = tape.Write(data)
	}
	if err := errors.Join(z.Close(), tape.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sources, err := origin.ParseSources([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, func(o *fetch.Options) {
		o.Sources = sources
		o.Hashed = func(file, _ string) {
			if !strings.Contains(file, "net.onnx") || filepath.Ext(file) != ".onnx" {
				t.Errorf("a hash of %s, which is no downloaded model", file)
			}
		}
	})
	for name, archive := range map[string][]byte{"m.zip": zipped.Bytes(), "m.tar.gz": tarred.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), archive, 0o644); err != nil {
			t.Fatal(err)
		}
		e := mustFetch(t, c, "file://"+dir+"/"+name+"#sha256="+sumOf(archive))
		hasModel(t, e, content)
		if got, err := os.ReadFile(filepath.Join(e.Dir, "net.onnx.data")); err != nil || len(got) != 99 {
			t.Error(len(got), err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "all"), os.DirFS(mustFetch(t, c, "file://"+dir+"/m.zip").Dir)); err != nil {
		t.Fatal(err)
	}
	hasModel(t, mustFetch(t, c, "file://"+dir+"/all/"), content)
}

// TestOneContentTwoLayouts: a file that is an archive by one name is not the model by another.
func TestOneContentTwoLayouts(t *testing.T) {
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	for name, data := range map[string]string{"metadata.json": "{}", "config.json": "{}", "model.weights.h5": "w", "m.onnx": "\x08\x08"} {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write([]byte(data))
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(zipped.Bytes()) }))
	defer s.Close()
	c := open(t, nil)
	sum := "#sha256=" + sumOf(zipped.Bytes())
	archive, keras := mustFetch(t, c, s.URL+"/m.zip"+sum), mustFetch(t, c, s.URL+"/m.keras"+sum)
	if archive == keras {
		t.Fatal("both are", archive)
	}
	if got, err := os.ReadFile(filepath.Join(keras.Dir, "model.keras")); err != nil || !bytes.Equal(got, zipped.Bytes()) {
		t.Error(len(got), err)
	}
	hasModel(t, archive, []byte("\x08\x08"))
}

// TestOthersContent: whoever has other credentials gets what the server gives for these, though the tag is the same.
func TestOthersContent(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		content := random(1 << 10)
		content[1] = r.Header.Get("Authorization")[len("Bearer ")]
		_, _ = w.Write(content)
	}))
	defer s.Close()
	c := open(t, nil)
	var got [2]fetch.Entry
	for i, token := range []string{"a", "b"} {
		e, err := c.Fetch(t.Context(), parse(t, s.URL+"/m.onnx"), origin.Credentials{Token: token}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got[i] = e
	}
	if got[0] == got[1] {
		t.Error("both have", got[0])
	}
}

// TestBounds: archives and answers that are meant to fill memory or the disk are refused.
func TestBounds(t *testing.T) {
	tarOf := func(name string, size int) []byte {
		var out bytes.Buffer
		packed := gzip.NewWriter(&out)
		tape := tar.NewWriter(packed)
		if err := tape.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(size), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		_, _ = tape.Write(make([]byte, size))
		if err := errors.Join(tape.Close(), packed.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	var many bytes.Buffer
	z := zip.NewWriter(&many)
	for i := range 150_000 {
		if _, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("%040d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"/deep.tgz": tarOf(strings.Repeat("a/", 40)+"m.onnx", 1), "/long.tgz": tarOf(strings.Repeat("a", 2000), 1),
		"/bomb.tgz": tarOf("m.onnx", 65<<20), "/directory.zip": many.Bytes(),
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/unended.onnx": // As servers of HTTP/1.0: the end of the connection is that of the file.
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = conn.Write([]byte("HTTP/1.0 200 OK\r\n\r\n\x08\x08"))
				_ = conn.Close()
			}
		case "/other.onnx":
			w.Header().Set("ETag", `"one"`)
			if r.Header.Get("Range") != "" {
				w.Header().Set("Content-Range", "bytes 7-99/100")
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(make([]byte, 93))
				return
			}
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write(make([]byte, 10))
		default:
			_, _ = w.Write(files[r.URL.Path])
		}
	}))
	defer s.Close()
	c := open(t, func(o *fetch.Options) { o.MaxBytes = 64 << 20 })
	for path, part := range map[string]string{
		"/deep.tgz": "40 folders", "/long.tgz": "2000 bytes", "/bomb.tgz": "--models-size", "/directory.zip": "8 MiB",
		"/unended.onnx": "how long", "/other.onnx": "asked for those from 10 on",
	} {
		refuses(t, c, s.URL+path, part)
	}
}

// TestTidyLeavesDownloads: what a download has left goes after a day, and not while it goes on.
func TestTidyLeavesDownloads(t *testing.T) {
	stuck := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"one"`)
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write(make([]byte, 10))
		w.(http.Flusher).Flush()
		<-stuck
	}))
	defer s.Close()
	defer close(stuck)
	dir := t.TempDir()
	c := open(t, func(o *fetch.Options) { o.Dir = dir })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	var p fetch.Progress
	go func() {
		_, err := c.Fetch(ctx, parse(t, s.URL+"/m.onnx"), origin.Credentials{}, &p)
		ended <- err
	}()
	left := func() int {
		parts, _ := filepath.Glob(filepath.Join(dir, "parts", "*", "*.part"))
		return len(parts)
	}
	for left() == 0 {
		time.Sleep(time.Millisecond)
	}
	later := time.Now().Add(48 * time.Hour)
	if _, err := c.Tidy(later); err != nil || left() != 1 {
		t.Error("Tidy removes a download that goes on", err)
	}
	cancel()
	<-ended
	if _, err := c.Tidy(later); err != nil || left() != 0 {
		t.Error("what a download has left stays", err)
	}
}
