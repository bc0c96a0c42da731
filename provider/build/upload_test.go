package build

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// uploading returns a handler whose verdict names the files of the bundle.
func uploading(t *testing.T, o Options) *Handler {
	t.Helper()
	o.CheckModel = checkModel
	o.Verdict = func(_ context.Context, file string, slo time.Duration) ([]byte, error) {
		return json.Marshal(map[string]any{"ok": true, "file": filepath.Base(file), "slo": slo.String()})
	}
	h, _ := serve(t, o)
	return h
}

// dropped sends a body as the console does.
func dropped(h *Handler, query string, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	if err := h.Upload(w, httptest.NewRequest(http.MethodPost, "/system/upload?"+query, body)); err != nil {
		w.Code = http.StatusInternalServerError
	}
	return w
}

// onnx returns a model's file.
func onnx(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder(t, map[string]string{"m.onnx": ""}), "m.onnx"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// zipOf and tarOf return archives of files, "name" → text, in pairs.
func zipOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		w, err := z.Create(files[i])
		if err == nil {
			_, err = io.WriteString(w, files[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// damagedZip is an archive with a bundle that was stored as it is, of which a byte has changed since.
func damagedZip(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "bundle.yaml", Method: zip.Store})
	if err == nil {
		_, err = io.WriteString(w, dropProgram)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(b.Bytes(), []byte("cat"), []byte("cut"), 1)
}

func tarOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}
		if target, ok := strings.CutPrefix(files[i+1], "→"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
			files[i+1] = ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const dropProgram = "name: p\nprocess: cat\n"

func TestUpload(t *testing.T) {
	h, model := uploading(t, Options{}), onnx(t)
	for _, c := range []struct {
		what, query string
		body        []byte
		want        string
		files       string
	}{
		{"a model", "name=mnist&slo=50ms", model, `{"file":"model.onnx","ok":true,"slo":"50ms"}`, "bundle.yaml model.onnx"},
		{"a zip archive of a folder", "name=team/net:v2", zipOf(t, "net/net.onnx", string(model), "net/labels.txt", "a\n", "__MACOSX/._net", "x"), `"file":"net.onnx"`, "bundle.yaml labels.txt net.onnx"},
		{"a zip archive with a manifest", "name=prog", zipOf(t, "bundle.yaml", dropProgram), "It is a program", "bundle.yaml"},
		{"a tar archive", "name=net", tarOf(t, "m.onnx", string(model)), `"file":"m.onnx"`, "bundle.yaml m.onnx"},
		{"a model again", "name=mnist", model, `"slo":"0s"`, "bundle.yaml model.onnx"},
	} {
		w := dropped(h, c.query, bytes.NewReader(c.body))
		var out Uploaded
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != http.StatusOK || !strings.Contains(string(out.Check), c.want) {
			t.Errorf("%s: %d %s", c.what, w.Code, w.Body)
			continue
		}
		b, err := bundle.Open(h.options.Root, out.Image)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		entries, err := os.ReadDir(b.Dir)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if err != nil || strings.Join(names, " ") != c.files {
			t.Errorf("%s: the bundle has %q", c.what, names)
		}
	}
	nothingLeft(t, h.options.Root)
}

// An upload is named by its content: it replaces no bundle that a function may use, and equal ones share a bundle.
func TestUploadReplacesNothing(t *testing.T) {
	h, program := uploading(t, Options{}), zipOf(t, "bundle.yaml", dropProgram)
	send := func(name string, body []byte) string {
		var out Uploaded
		if w := dropped(h, "name="+name, bytes.NewReader(body)); w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &out) != nil {
			t.Fatalf("%s: %d %s", name, w.Code, w.Body)
		}
		return out.Image
	}
	for name, image := range map[string]string{"mnist": "mnist:", "mnist:latest": "mnist:latest-", "host:5000/mnist": "host:5000/mnist:"} {
		first := send(name, onnx(t))
		if want := fmt.Sprintf("%s%.6x", image, sha256.Sum256(onnx(t))); first != want {
			t.Errorf("%s is %s, want %s", name, first, want)
		}
		if second := send(name, program); second == first {
			t.Errorf("%s: two contents are %s", name, first)
		}
		if again := send(name, onnx(t)); again != first {
			t.Errorf("%s: one content is %s and %s", name, first, again)
		}
		if b, err := bundle.Open(h.options.Root, first); err != nil || b.IsProgram() {
			t.Errorf("%s: %+v, %v", first, b, err)
		}
	}
	if _, err := bundle.Open(h.options.Root, "mnist:latest"); !errors.Is(err, bundle.ErrNotFound) {
		t.Errorf("mnist:latest was made: %v", err)
	}
}

// Refusals are JSON, name the way out, and leave nothing.
func TestRefusedUploads(t *testing.T) {
	h, model := uploading(t, Options{MaxBytes: 4 << 20, MaxUnpacked: 2 << 20, MaxEntries: 100}), onnx(t)
	many := make([]string, 0, 400)
	for i := range 200 {
		many = append(many, fmt.Sprintf("f%d", i), "x")
	}
	for _, c := range []struct {
		what, query string
		body        []byte
		code        int
		want        string
	}{
		{"no name", "", model, 400, "?name="},
		{"HTML in the name", "name=" + url.QueryEscape("<script>alert(1)</script>"), model, 400, "must consist of letters"},
		{"a name that leads out", "name=../../etc/x", model, 400, "must consist of letters"},
		{"an absolute name", "name=/etc/x", model, 400, "must consist of letters"},
		{"a digest", "name=a@sha256:0", model, 400, "no digest"},
		{"a built-in image", "name=" + url.QueryEscape("functions/alpine:latest"), model, 400, "built in"},
		{"no objective", "name=a&slo=fast", model, 400, "slo=200ms"},
		{"nothing", "name=a", nil, 415, "an empty file"},
		{"a Keras file", "name=a", []byte("\x89HDF\r\n\x1a\n" + strings.Repeat("x", 100)), 415, "faas-infer model convert"},
		{"safetensors", "name=a", []byte("\x10\x00\x00\x00\x00\x00\x00\x00{\"a\":{\"dtype\"}}"), 415, "export the model to ONNX"},
		{"a PyTorch file", "name=a", zipOf(t, "m/data.pkl", "x"), 415, "torch.export.save"},
		{"another archive", "name=a", zipOf(t, "readme.txt", "x"), 415, "unpack"},
		{"text", "name=a", []byte("hello"), 400, ""},
		{"half a model", "name=a", model[:len(model)/2], 400, ""},
		{"half a zip archive", "name=a", zipOf(t, "bundle.yaml", dropProgram)[:40], 415, "ends early"},
		{"an entry that leads out of a zip", "name=a", zipOf(t, "bundle.yaml", dropProgram, "../../evil", "x"), 400, "leads out"},
		{"an entry that leads out of a tar", "name=a", tarOf(t, "bundle.yaml", dropProgram, "/evil", "x"), 400, "leads out"},
		{"a link that leads out", "name=a", tarOf(t, "bundle.yaml", dropProgram, "evil", "→/etc/passwd"), 400, "out of the bundle"},
		{"a bomb", "name=a", zipOf(t, "bundle.yaml", dropProgram, "zeros", strings.Repeat("\x00", 3<<20)), 400, "larger than the builder's limit"},
		{"a damaged entry", "name=a", damagedZip(t), 400, "checksum"},
		{"many files", "name=a", zipOf(t, append(many, "bundle.yaml", dropProgram)...), 400, "too many"},
		{"a large file", "name=a", make([]byte, 5<<20), 413, "--max-build"},
	} {
		w := dropped(h, c.query, bytes.NewReader(c.body))
		var out map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != c.code || !strings.Contains(out["error"], c.want) || out["error"] == "" ||
			w.Header().Get("Content-Type") != "application/json" || strings.Contains(out["error"], h.options.Root) {
			t.Errorf("%s: %d %s, want %d %q", c.what, w.Code, w.Body, c.code, c.want)
		}
	}
	nothingLeft(t, h.options.Root)
	if _, err := bundle.Open(h.options.Root, "a"); !errors.Is(err, bundle.ErrNotFound) {
		t.Errorf("a refused upload has a bundle: %v", err)
	}
	if held := h.stored.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// A refusal is answered at once, and the connection is closed instead of waiting for the rest of the body.
func TestRefusedUploadClosesTheConnection(t *testing.T) {
	h := uploading(t, Options{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = h.Upload(w, r) }))
	defer s.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /?name=%%3Cb%%3E HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\nbegin", 1<<29)
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 400 || !response.Close {
		t.Errorf("%s, closes: %v", response.Status, response.Close)
	}
}

// endless is a body of 5 GB that counts what is read of it.
type endless struct{ left, read int64 }

func (e *endless) Read(p []byte) (int, error) {
	n := min(int64(len(p)), e.left)
	e.left, e.read = e.left-n, e.read+n
	if n == 0 {
		return 0, io.EOF
	}
	return int(n), nil
}

// A file of 5 GB is refused before it is read if its length is known, and at the bound otherwise.
func TestUploadOfALargeFile(t *testing.T) {
	h := uploading(t, Options{MaxBytes: 32 << 20})
	for what, length := range map[string]int64{"known": 5 << 30, "unknown": -1} {
		body := &endless{left: 5 << 30}
		r := httptest.NewRequest(http.MethodPost, "/system/upload?name=a", body)
		r.ContentLength = length
		w := httptest.NewRecorder()
		if err := h.Upload(w, r); err != nil || w.Code != http.StatusRequestEntityTooLarge || w.Header().Get("Connection") != "close" {
			t.Errorf("%s length: %d %s", what, w.Code, w.Body)
		}
		if most := h.options.MaxBytes + 1; length > 0 && body.read > 0 || body.read > most {
			t.Errorf("%s length: %d bytes were read", what, body.read)
		}
	}
	nothingLeft(t, h.options.Root)
}

// Two uploads of one name at once leave one whole bundle, and both are answered.
func TestTwoUploadsAtOnce(t *testing.T) {
	h, model := uploading(t, Options{}), onnx(t)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			if w := dropped(h, "name=a", bytes.NewReader(model)); w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	both.Wait()
	if b, err := bundle.Open(h.options.Root, contentImage("a", fmt.Sprintf("%x", sha256.Sum256(model)))); err != nil || checkModel(t.Context(), b.ModelPath()) != nil {
		t.Errorf("%+v, %v", b, err)
	}
	nothingLeft(t, h.options.Root)
}

// Without a secret nothing is built, and uploads work.
func TestUploadWithoutASecret(t *testing.T) {
	h := uploading(t, Options{})
	h.options.Secret = nil
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/build", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("a build: %d %s", w.Code, w.Body)
	}
	if w := dropped(h, "name=a", bytes.NewReader(onnx(t))); w.Code != http.StatusOK {
		t.Errorf("an upload: %d %s", w.Code, w.Body)
	}
}
