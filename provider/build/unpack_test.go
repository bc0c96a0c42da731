package build

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openfaas/go-sdk/builder"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// entry is one of a tar; a file unless kind says otherwise.
type entry struct {
	name, text, link string
	kind             byte
	mode             int64
	size             int64
}

// named is the config that names the image.
func named(image string) entry {
	return entry{name: "com.openfaas.docker.config", text: fmt.Sprintf(`{"image":%q}`, image)}
}

// archive is a tar of the entries. One whose size is not that of its text is cut
// off.
func archive(entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Linkname: e.link, Mode: e.mode, Size: int64(len(e.text))}
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			h = &tar.Header{Typeflag: h.Typeflag, PAXRecords: map[string]string{"comment": "a commit"}}
		}
		if e.size > 0 {
			h.Size = e.size
		}
		if err := w.WriteHeader(h); err != nil {
			panic(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			panic(err)
		}
	}
	w.Close() // It is an error where one was cut off.
	return b.Bytes()
}

var manifest = entry{name: "context/bundle.yaml", text: "name: a\nprocess: cat\n"}

// result sends a tar and returns the answer.
func sent(t *testing.T, h *Handler, body []byte) builder.BuildResult {
	t.Helper()
	w := post(h, bytes.NewReader(body), sign(body, secret), "")
	var result builder.BuildResult
	if err := json.Unmarshal(w.Body.Bytes(), &result); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return result
}

func TestHostileTars(t *testing.T) {
	for _, test := range []struct {
		name    string
		entries []entry
		words   string
	}{
		{"parent", []entry{{name: "context/../../evil", text: "x"}}, "leads out"},
		{"parent that comes back", []entry{{name: "context/a/../b", text: "x"}}, "leads out"},
		{"bare parent", []entry{{name: "../evil", text: "x"}}, "leads out"},
		{"absolute", []entry{{name: "/tmp/evil", text: "x"}}, "leads out"},
		{"beside the context", []entry{{name: "evil", text: "x"}}, "not below context/"},
		{"a name that begins alike", []entry{{name: "context-evil", text: "x"}}, "not below context/"},
		{"the context as a file", []entry{{name: "context", text: "x"}}, "not a directory"},
		{"the context as a link", []entry{{name: "context", kind: tar.TypeSymlink, link: "/etc"}}, "not a directory"},
		{"absolute link", []entry{{name: "context/l", kind: tar.TypeSymlink, link: "/etc/passwd"}}, "out of the bundle"},
		{"link out", []entry{{name: "context/l", kind: tar.TypeSymlink, link: "../evil"}}, "out of the bundle"},
		{"link out to nothing", []entry{{name: "context/l", kind: tar.TypeSymlink, link: "nothing/../../evil"}}, "out of the bundle"},
		{"link out by another", []entry{{name: "context/a/b/c/up", kind: tar.TypeSymlink, link: "../../.."}, {name: "context/l", kind: tar.TypeSymlink, link: "a/b/c/up/../../etc"}}, "out of the bundle"},
		{"link to itself", []entry{{name: "context/l", kind: tar.TypeSymlink, link: "l"}}, "symbolic link"},
		{"writing through a link", []entry{{name: "context/l", kind: tar.TypeSymlink, link: "/tmp"}, {name: "context/l/evil", text: "x"}}, "is twice"},
		{"link in the place of a directory", []entry{{name: "context/l", kind: tar.TypeDir}, {name: "context/l", kind: tar.TypeSymlink, link: "x"}}, "is twice"},
		{"manifest is a link out", []entry{{name: "context/function/bundle.yaml", kind: tar.TypeSymlink, link: "../../../../etc/passwd"}}, "out of the bundle"},
		{"function is a link", []entry{{name: "context/real/bundle.yaml", text: manifest.text}, {name: "context/function", kind: tar.TypeSymlink, link: "real"}}, "neither a bundle.yaml"},
		{"link out of what is left", []entry{{name: "context/x", text: "x"}, {name: "context/function/bundle.yaml", text: manifest.text}, {name: "context/function/l", kind: tar.TypeSymlink, link: "../x"}}, "out of the bundle"},
		{"hard link out", []entry{{name: "context/l", kind: tar.TypeLink, link: "/etc/passwd"}}, "hard link"},
		{"hard link up", []entry{{name: "context/l", kind: tar.TypeLink, link: "context/../../x"}}, "hard link"},
		{"hard link to nothing", []entry{{name: "context/l", kind: tar.TypeLink, link: "context/later"}, {name: "context/later", text: "x"}}, "not an earlier file"},
		{"hard link to a directory", []entry{{name: "context/d", kind: tar.TypeDir}, {name: "context/l", kind: tar.TypeLink, link: "context/d"}}, "not an earlier file"},
		{"device", []entry{{name: "context/d", kind: tar.TypeBlock}}, "neither a file"},
		{"character device", []entry{{name: "context/d", kind: tar.TypeChar}}, "neither a file"},
		{"fifo", []entry{{name: "context/d", kind: tar.TypeFifo}}, "neither a file"},
		{"twice", []entry{{name: "context/a", text: "1"}, {name: "context/a", text: "2"}}, "is twice"},
		{"twice by another name", []entry{{name: "context/a", text: "1"}, {name: "context/./a", text: "2"}}, "is twice"},
		{"a file as a directory", []entry{{name: "context/a", text: "1"}, {name: "context/a/b", text: "2"}}, "is twice"},
		{"a directory as a file", []entry{{name: "context/a/b", text: "1"}, {name: "context/a", text: "2"}}, "is twice"},
		{"a long name", []entry{{name: "context/" + strings.Repeat("a/", 600), kind: tar.TypeDir}}, "longer than"},
		{"a long part", []entry{{name: "context/" + strings.Repeat("a", 300), text: "x"}}, "name too long"},
		{"large", []entry{{name: "context/a", size: 1 << 40}}, "files together are larger"},
		{"large together", []entry{{name: "context/a", text: strings.Repeat("x", 60<<10)}, {name: "context/b", text: strings.Repeat("x", 60<<10)}}, "files together are larger"},
		{"many", many(101), "too many files"},
		{"deep", []entry{{name: "context/" + strings.Repeat("a/", 200) + "x", text: "x"}}, "too many directories"},
		{"build secrets", []entry{{name: "com.openfaas.secrets", text: "x"}}, "build secrets"},
		{"two configs", []entry{named("b")}, "twice in the tar"},
		{"cut off", []entry{{name: "context/a", size: 1000, text: "x"}}, "unexpected EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, _ := serve(t, Options{MaxUnpacked: 100 << 10, MaxEntries: 100, Root: filepath.Join(t.TempDir(), "in/bundles")})
			entries := []entry{named("a")}
			if !strings.Contains(test.name, "function") && !strings.Contains(test.name, "manifest") && !strings.Contains(test.name, "left") {
				entries = append(entries, manifest)
			}
			result := sent(t, h, archive(append(entries, test.entries...)...))
			if result.Status != builder.BuildFailed || !strings.Contains(result.Error, test.words) {
				t.Errorf("%+v, want %q", result, test.words)
			}
			nothingLeft(t, h.options.Root)
			// Neither the bundle nor anything beside the directory of bundles.
			for path, want := range map[string]string{h.options.Root: ".staging", filepath.Dir(h.options.Root): "bundles"} {
				entries, err := os.ReadDir(path)
				if err != nil || len(entries) != 1 || entries[0].Name() != want {
					t.Errorf("in %s: %v, %v", path, entries, err)
				}
			}
		})
	}
}

func many(n int) (files []entry) {
	for i := range n {
		files = append(files, entry{name: fmt.Sprintf("context/%d", i), text: "x"})
	}
	return files
}

func TestOddConfigs(t *testing.T) {
	h, _ := serve(t, Options{})
	for _, test := range []struct {
		config *entry
		words  string
	}{
		{nil, "has no com.openfaas.docker.config"},
		{&entry{name: "com.openfaas.docker.config", text: "{"}, "com.openfaas.docker.config:"},
		{&entry{name: "com.openfaas.docker.config", text: `{"image":1}`}, "com.openfaas.docker.config:"},
		{&entry{name: "com.openfaas.docker.config", text: "{}"}, "image is missing"},
		{&entry{name: "com.openfaas.docker.config", text: strings.Repeat(" ", 1<<20+1)}, "larger than"},
		{&entry{name: "com.openfaas.docker.config", kind: tar.TypeDir}, "is not a file"},
	} {
		entries := []entry{manifest}
		if test.config != nil {
			entries = append(entries, *test.config)
		}
		if result := sent(t, h, archive(entries...)); result.Status != builder.BuildFailed || !strings.Contains(result.Error, test.words) {
			t.Errorf("%+v, want %q", result, test.words)
		}
	}
	if result := sent(t, h, []byte("no tar at all, but signed")); !strings.Contains(result.Error, "not a tar") {
		t.Errorf("%+v", result)
	}
}

// Links that stay inside, executables and comments are kept as they were;
// setuid is not.
func TestWhatIsKept(t *testing.T) {
	h, _ := serve(t, Options{})
	body := archive(entry{name: "pax_global_header", kind: tar.TypeXGlobalHeader}, entry{name: "context/", kind: tar.TypeDir}, manifest,
		entry{name: "./context/bin/run", text: "#!/bin/sh\n", mode: 0o6711}, entry{name: "context/bin", kind: tar.TypeDir, mode: 0o700},
		entry{name: "context/run", kind: tar.TypeSymlink, link: "bin/run"}, entry{name: "context/dangling", kind: tar.TypeSymlink, link: "bin/later"},
		entry{name: "context/bin/up", kind: tar.TypeSymlink, link: "../bundle.yaml"}, entry{name: "context/hard", kind: tar.TypeLink, link: "context/bin/run"},
		entry{name: "context/private", text: "x", mode: 0o600}, named("a"))
	if result := sent(t, h, body); result.Status != builder.BuildSuccess {
		t.Fatalf("%+v", result)
	}
	dir := filepath.Join(h.options.Root, "a/latest")
	for name, want := range map[string]fs.FileMode{"bin": fs.ModeDir | 0o755, "bin/run": 0o755, "hard": 0o755, "private": 0o644, "run": fs.ModeSymlink | 0o777} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info, err, want)
		}
	}
	for name, want := range map[string]string{"run": "bin/run", "dangling": "bin/later", "bin/up": "../bundle.yaml"} {
		if got, err := os.Readlink(filepath.Join(dir, name)); err != nil || got != want {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
}

// A client that hangs up while its context is unpacked leaves nothing.
func TestClientGoesAway(t *testing.T) {
	h, _ := serve(t, Options{})
	body := archive(manifest, named("a"))
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/build", &hangUp{Reader: bytes.NewReader(body), cancel: cancel})
	r.Header.Set(signatureHeader, sign(body, secret))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if !strings.Contains(w.Body.String(), "went away") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if _, err := os.Stat(filepath.Join(h.options.Root, "a")); err == nil {
		t.Error("it was built")
	}
	nothingLeft(t, h.options.Root)
}

// hangUp ends the request's context when its body has been read.
type hangUp struct {
	*bytes.Reader
	cancel func()
}

func (h *hangUp) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	if err != nil {
		h.cancel()
	}
	return n, err
}

// planned is a tar with an entry for each line: its kind, its name, and after a space its text or the target of its
// link. The fuzzer changes such lines rather than tars, of which most bytes are padding: it would spend all its time
// on making those smaller (give -fuzzminimizetime 20x all the same, because what covers files varies). planned returns false if there is no such tar.
func planned(lines string) (body []byte, ok bool) {
	defer func() { _ = recover() }() // archive panics then.
	var entries []entry
	for line := range strings.SplitSeq(lines, "\n") {
		if line == "" {
			continue
		}
		name, rest, _ := strings.Cut(line[1:], " ")
		e := entry{name: name, kind: line[0]}
		if e.kind == tar.TypeReg {
			e.text = strings.ReplaceAll(rest, `\n`, "\n")
		} else {
			e.link = rest
		}
		entries = append(entries, e)
	}
	return archive(entries...), true
}

// No tar writes a file outside the bundle's place, and the result there is a bundle.
func FuzzUnpack(f *testing.F) {
	const config, bundled = "0com.openfaas.docker.config {\"image\":\"a\"}", "0context/bundle.yaml name: a\\nprocess: cat\\n"
	for _, lines := range [][]string{
		{bundled, config}, {bundled, config, "2context/l ../x"}, {config, bundled, "1context/h context/bundle.yaml"}, {config, "0context/m.onnx x"}, {},
		{`0com.openfaas.docker.config {"image":"team/b:v1"}`, `0context/function/bundle.yaml name: a\nprocess: cat\n`, "0context/function/d/e x", "5context/function/f "},
	} {
		f.Add(strings.Join(lines, "\n"), uint16(0), byte(0))
	}
	f.Fuzz(func(t *testing.T, lines string, at uint16, damage byte) {
		body, ok := planned(lines)
		if !ok {
			t.Skip("no tar has such an entry")
		}
		body[int(at)%len(body)] ^= damage
		above := t.TempDir()
		root := filepath.Join(above, "bundles")
		h, err := New(Options{Root: root, Secret: []byte(secret), MaxUnpacked: 1 << 20, MaxEntries: 50, Logger: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		w := post(h, bytes.NewReader(body), sign(body, secret), "")
		var result builder.BuildResult
		if err := json.Unmarshal(w.Body.Bytes(), &result); err != nil {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		nothingLeft(t, root)
		if entries, err := os.ReadDir(above); err != nil || len(entries) != 1 {
			t.Fatalf("beside the bundles: %v, %v", entries, err)
		}
		if result.Status == builder.BuildSuccess {
			b, err := bundle.Open(root, result.Image)
			if err != nil {
				t.Fatal(err)
			}
			if err := Contained(b.Dir); err != nil {
				t.Fatal(err)
			}
		}
	})
}
