package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
)

// counting is a registry that records the blobs read from it.
type counting struct {
	http.Handler
	blobs []string
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
		c.blobs = append(c.blobs, r.URL.Path)
	}
	c.Handler.ServeHTTP(w, r)
}

func serve(t *testing.T) (host string, _ *counting) {
	t.Helper()
	c := &counting{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), c
}

// baseImage is a base image of functions. Its layer is never read.
func baseImage(t *testing.T) v1.Image {
	t.Helper()
	layer, err := Layer([]Entry{Bytes("usr/bin/faas-infer", 0o755, bytes.Repeat([]byte("program "), 1000))})
	if err != nil {
		t.Fatal(err)
	}
	i, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	i, err = mutate.Config(i, v1.Config{Entrypoint: []string{Program}, Env: []string{"PATH=/usr/bin", "mode=streaming"}, Labels: map[string]string{TLSLabel: "true"}})
	if err != nil {
		t.Fatal(err)
	}
	return platform(t, i)
}

// platform makes an image one for this machine.
func platform(t *testing.T, i v1.Image) v1.Image {
	t.Helper()
	c, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", "amd64"
	if i, err = mutate.ConfigFile(i, c); err != nil {
		t.Fatal(err)
	}
	return i
}

func modelBundle(t *testing.T) *bundle.Bundle {
	t.Helper()
	m, err := zoo.Make("identity", 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Write(t.TempDir(), "one", bundle.Manifest{Name: "one"}, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func push(t *testing.T, ref string, i v1.Image) string {
	t.Helper()
	digest, err := Push(t.Context(), ref, i, nil)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestAppendAndPull(t *testing.T) {
	host, registry := serve(t)
	from := modelBundle(t)
	made, err := Append(baseImage(t), from)
	if err != nil {
		t.Fatal(err)
	}
	ref := host + "/team/one:v1"
	pushed := push(t, ref, made)
	cache := t.TempDir()
	b, err := Pull(t.Context(), ref, nil, cache)
	if err != nil {
		t.Fatal(err)
	}
	if b.Reference != pushed || !strings.HasSuffix(pushed, "@"+b.Digest) || b.Resolved.Bundle != Dir || b.Name != "one" {
		t.Errorf("%+v, pushed %s", b, pushed)
	}
	if in, err := b.InImage(b.ModelPath()); err != nil || in != "/bundle/model.onnx" {
		t.Errorf("in the image: %q, %v", in, err)
	}
	if _, err := b.InImage("/etc/passwd"); err == nil {
		t.Error("a file that is not in the bundle has a place in it")
	}
	want, _ := os.ReadFile(from.ModelPath())
	got, err := os.ReadFile(b.ModelPath())
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the model differs: %v", err)
	}
	// Pull reads the config and the bundle's layer, not the base's.
	if len(registry.blobs) != 2 {
		t.Errorf("read %q", registry.blobs)
	}
	registry.blobs = nil
	if again, err := Pull(t.Context(), ref, nil, cache); err != nil || again.Dir != b.Dir || len(registry.blobs) != 1 {
		t.Errorf("again: %+v, %v, read %q", again, err, registry.blobs)
	}
	entries, err := filepath.Glob(filepath.Join(cache, ".*"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	fetched, err := Fetch(t.Context(), ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(fetched); err != nil {
		t.Error(err)
	}
}

func TestSameBundleSameImage(t *testing.T) {
	base, b := baseImage(t), modelBundle(t)
	var digests []v1.Hash
	for range 2 {
		i, err := Append(base, b)
		if err != nil {
			t.Fatal(err)
		}
		d, err := i.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d)
		// Other times and permissions change nothing.
		if err := os.Chmod(b.ModelPath(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("%v", digests)
	}
}

// An image does not show the files of an earlier bundle in its base.
func TestAppendTwice(t *testing.T) {
	host, _ := serve(t)
	first := modelBundle(t)
	if err := os.WriteFile(filepath.Join(first.Dir, "old"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	i, err := Append(baseImage(t), first)
	if err != nil {
		t.Fatal(err)
	}
	if i, err = Append(i, modelBundle(t)); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	flat := mutate.Extract(i)
	defer flat.Close()
	for tape := tar.NewReader(flat); ; {
		h, err := tape.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names[h.Name] = true
	}
	if names["bundle/old"] || !names["bundle/model.onnx"] {
		t.Errorf("%v", names)
	}
	push(t, host+"/two", i)
	if _, err := Pull(t.Context(), host+"/two", nil, t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestProgramImage(t *testing.T) {
	dir := t.TempDir()
	manifest := "name: greet\nprocess: ./handler\nmode: http\nenv: {GREETING: Hello}\n"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "bundle.yaml"), []byte(manifest), 0o600), os.WriteFile(filepath.Join(dir, "handler"), []byte("#!/bin/sh\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	i, err := Append(baseImage(t), b)
	if err != nil {
		t.Fatal(err)
	}
	c, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Config.Cmd, []string{"watchdog", "--bundle", "/bundle", "--listen", Listen}) {
		t.Errorf("command %q", c.Config.Cmd)
	}
	host, _ := serve(t)
	for name, c := range map[string]struct {
		change func(*v1.Config)
		ours   bool
	}{
		"ours":            {func(*v1.Config) {}, true},
		"another-server":  {func(c *v1.Config) { c.Cmd = []string{"instance"} }, false},
		"another-program": {func(c *v1.Config) { c.Entrypoint = []string{"/usr/bin/fwatchdog"} }, false},
		"no-command":      {func(c *v1.Config) { c.Cmd = nil }, false},
		"older":           {func(c *v1.Config) { c.Labels = nil }, true},
	} {
		config, err := i.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config = config.DeepCopy()
		c.change(&config.Config)
		changed, err := mutate.ConfigFile(i, config)
		if err != nil {
			t.Fatal(err)
		}
		push(t, host+"/"+name, changed)
		if r, err := Resolve(t.Context(), host+"/"+name, nil); err != nil || r.TLS != (name != "older") || (r.Watchdog != nil) != c.ours || c.ours && !slices.Equal(r.Watchdog, config.Config.Cmd) {
			t.Errorf("%s: the watchdog is started with %v, %v", name, r, err)
		}
	}
	if want := []string{"PATH=/usr/bin", "GREETING=Hello", "fprocess=./handler", "mode=http"}; !slices.Equal(c.Config.Env, want) {
		t.Errorf("environment %q, want %q", c.Config.Env, want)
	}
	layers, err := i.Layers()
	if err != nil {
		t.Fatal(err)
	}
	content, err := layers[len(layers)-1].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	for tape := tar.NewReader(content); ; {
		h, err := tape.Next()
		if err != nil {
			break
		}
		want := int64(0o755)
		if h.Name == "bundle/bundle.yaml" {
			want = 0o644
		}
		if h.Mode != want || h.Uid != 0 || !h.ModTime.Equal(Epoch) {
			t.Errorf("%s has mode %o, owner %d, time %v", h.Name, h.Mode, h.Uid, h.ModTime)
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	if _, err := Append(empty.Image, modelBundle(t)); !errors.Is(err, ErrBase) {
		t.Errorf("any base: %v", err)
	}
	b := modelBundle(t)
	if err := os.Symlink("/etc/passwd", filepath.Join(b.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := Append(baseImage(t), b); err == nil || !strings.Contains(err.Error(), "link") {
		t.Errorf("a link that leads out: %v", err)
	}
}

// foreign is an image as other tools make it: the label, and layers of tars.
func foreign(t *testing.T, label string, layers ...[]tar.Header) v1.Image {
	t.Helper()
	i := v1.Image(empty.Image)
	for _, headers := range layers {
		var text bytes.Buffer
		w := tar.NewWriter(&text)
		for _, h := range headers {
			content := h.PAXRecords["content"]
			h.PAXRecords = nil
			if h.Typeflag == tar.TypeReg && h.Size == 0 {
				h.Size = int64(len(content))
			}
			if h.Mode == 0 {
				h.Mode = 0o644
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text.Bytes())), nil })
		if err != nil {
			t.Fatal(err)
		}
		if i, err = mutate.AppendLayers(i, layer); err != nil {
			t.Fatal(err)
		}
	}
	i, err := mutate.Config(i, v1.Config{Labels: map[string]string{Label: label}})
	if err != nil {
		t.Fatal(err)
	}
	return platform(t, i)
}

func regular(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"content": content}}
}

func TestPullForeign(t *testing.T) {
	host, _ := serve(t)
	manifest := regular("app/m/bundle.yaml", "name: a\nengine: onnx\nmodel: model.onnx\n")
	below := []tar.Header{{Typeflag: tar.TypeDir, Name: "app/"}, manifest, regular("app/m/model.onnx", "old"), regular("app/m/gone", "x"), regular("etc/passwd", "root")}
	above := []tar.Header{regular("./app/m/model.onnx", "new"), regular("app/m/.wh.gone", ""), {Typeflag: tar.TypeSymlink, Name: "app/m/link", Linkname: "model.onnx"},
		{Typeflag: tar.TypeLink, Name: "app/m/hard", Linkname: "app/m/model.onnx"}}
	push(t, host+"/foreign", foreign(t, "/app/m/", below, above))
	b, err := Pull(t.Context(), host+"/foreign", nil, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, _ := os.ReadDir(b.Dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"bundle.yaml", "hard", "link", "model.onnx"}) {
		t.Errorf("unpacked %q", names)
	}
	for _, name := range []string{"hard", "link", "model.onnx"} {
		if text, err := os.ReadFile(filepath.Join(b.Dir, name)); err != nil || string(text) != "new" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestPullRefuses(t *testing.T) {
	host, _ := serve(t)
	manifest := regular("bundle/bundle.yaml", "name: a\nengine: onnx\nmodel: model.onnx\n")
	whole := []tar.Header{manifest, regular("bundle/model.onnx", "0123456789")}
	with := func(h tar.Header) []tar.Header { return append(slices.Clone(whole), h) }
	for _, test := range []struct {
		name  string
		image v1.Image
		limit int64
		want  string
	}{
		{"no label", baseImage(t), 0, "no label " + Label},
		{"relative label", foreign(t, "bundle", whole), 0, "absolute path"},
		{"root as label", foreign(t, "/", whole), 0, "absolute path"},
		{"no manifest", foreign(t, "/bundle", whole[1:]), 0, "bundle.yaml"},
		{"elsewhere", foreign(t, "/other", whole), 0, "bundle.yaml"},
		{"no model", foreign(t, "/bundle", whole[:1]), 0, "model.onnx"},
		{"too large", foreign(t, "/bundle", whole), 20, "too large"},
		{"symbolic link", foreign(t, "/bundle", with(tar.Header{Typeflag: tar.TypeSymlink, Name: "bundle/l", Linkname: "/etc/passwd"})), 0, "out of the bundle"},
		{"hard link", foreign(t, "/bundle", with(tar.Header{Typeflag: tar.TypeLink, Name: "bundle/l", Linkname: "etc/passwd"})), 0, "out of the bundle"},
		{"two links", foreign(t, "/bundle", append(slices.Clone(whole), tar.Header{Typeflag: tar.TypeSymlink, Name: "bundle/a/b/up", Linkname: "../.."},
			tar.Header{Typeflag: tar.TypeSymlink, Name: "bundle/l", Linkname: "a/b/up/../x"})), 0, "out of the bundle"},
		{"device", foreign(t, "/bundle", with(tar.Header{Typeflag: tar.TypeChar, Name: "bundle/null"})), 0, "neither a file"},
	} {
		ref := host + "/" + strings.ReplaceAll(test.name, " ", "-")
		push(t, ref, test.image)
		cache := t.TempDir()
		var options []Option
		if test.limit > 0 {
			options = append(options, func(s *settings) { s.maxBytes, s.maxFiles = test.limit, 100 })
		}
		_, err := Pull(t.Context(), ref, nil, cache, options...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if left, _ := filepath.Glob(filepath.Join(cache, "*")); len(left) > 0 {
			t.Errorf("%s: left behind %q", test.name, left)
		}
	}
	for ref, want := range map[string]error{host + "/absent:v1": ErrNotFound, "Not An Image": ErrReference, host + "/no-label": ErrNoBundle} {
		if _, err := Pull(t.Context(), ref, nil, t.TempDir()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", ref, err, want)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Pull(gone, host+"/no-label", nil, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestDenied(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "pass" {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	host := strings.TrimPrefix(s.URL, "http://")
	if _, err := Resolve(t.Context(), host+"/a", authn.NewMultiKeychain()); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "pull secret") {
		t.Errorf("without credentials: %v", err)
	}
	k, err := NewKeychain([]byte(`{"auths":{"http://` + host + `/v2/":{"auth":"bWU6cGFzcw=="}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resolve(t.Context(), host+"/a", k); !errors.Is(err, ErrNotFound) {
		t.Errorf("with credentials: %v", err)
	}
}

func TestPublish(t *testing.T) {
	host, _ := serve(t)
	push(t, host+"/base:v1", baseImage(t))
	b := modelBundle(t)
	on := func(base v1.Image) (v1.Image, error) { return Append(base, b) }
	reference, err := Publish(t.Context(), host+"/base:v1", host+"/team/one:v2", on, nil)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := Pull(t.Context(), host+"/team/one:v2", nil, t.TempDir())
	if err != nil || pulled.Reference != reference {
		t.Errorf("pulled %+v, %v, published %s", pulled, err, reference)
	}
	if _, err := Publish(t.Context(), host+"/absent", host+"/x", on, nil); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "base image") {
		t.Errorf("no base: %v", err)
	}
	if _, err := Publish(t.Context(), host+"/base:v1", "Not A Name", on, nil); !errors.Is(err, ErrReference) {
		t.Errorf("no name: %v", err)
	}
}

// No layer can make Pull write outside the bundle's directory.
func FuzzExtract(f *testing.F) {
	for _, seed := range []struct{ a, b, link string }{
		{"bundle/a", "bundle/a/b", "/etc"}, {"bundle/../x", "bundle/l/x", ".."}, {"/bundle/./l", "bundle/l/../../x", "../../outside"}, {"bundle//", "bundle/a\x00", ""},
	} {
		f.Add(seed.a, seed.b, seed.link, byte(tar.TypeSymlink))
		f.Add(seed.a, seed.b, seed.link, byte(tar.TypeLink))
	}
	f.Fuzz(func(t *testing.T, first, second, target string, kind byte) {
		outside := t.TempDir()
		dir := filepath.Join(outside, "inside")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		x := &extraction{root: root, prefix: "bundle/", bytes: 100, files: 10}
		// Errors are allowed. A write outside the directory is not.
		_ = x.entry(&tar.Header{Name: first, Typeflag: kind, Linkname: target}, strings.NewReader(""))
		_ = x.entry(&tar.Header{Name: second, Typeflag: tar.TypeReg, Size: 1}, strings.NewReader("x"))
		_ = x.makeLinks()
		left, err := os.ReadDir(outside)
		if err != nil || len(left) != 1 {
			t.Errorf("%q, %q to %q: outside is %v, %v", first, second, target, left, err)
		}
		err = filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
			if err != nil || e.Type()&os.ModeSymlink == 0 {
				return err
			}
			if to, err := os.Readlink(name); err != nil || filepath.IsAbs(to) {
				t.Errorf("the link %s leads to %q, %v", name, to, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
