package build

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openfaas/go-sdk/builder"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/zoo"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(victimRoot); root != "" {
		victim(root)
		return
	}
	goleak.VerifyTestMain(m)
}

const secret = "a payload secret"

// serve starts a builder with a root of its own.
func serve(t *testing.T, o Options) (*Handler, *httptest.Server) {
	t.Helper()
	if o.Root == "" {
		o.Root = t.TempDir()
	}
	o.Secret, o.Logger = []byte(secret), zerolog.New(zerolog.NewTestWriter(t))
	h, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/build", h)
	mux.HandleFunc("/publickey", PublicKey)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return h, s
}

// client is what faas-cli uses.
func client(t *testing.T, s *httptest.Server, secret string) *builder.FunctionBuilder {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return builder.NewFunctionBuilder(u, &http.Client{Transport: closing{s.Client().Transport}}, builder.WithHmacAuth(secret))
}

// closing closes the bodies that the client leaves open, those of refusals.
type closing struct{ http.RoundTripper }

func (c closing) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = answer.Body.Close()
	}
	return answer, err
}

// folder writes files, "name" → text. A text that begins with #! makes an executable, and
// a name that ends in .onnx a model.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if strings.HasPrefix(text, "#!") {
			mode = 0o700
		}
		if filepath.Ext(name) == ".onnx" && text == "" {
			m, err := zoo.Make("identity", 1)
			if err := errors.Join(err, m.WriteFile(name)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// packed returns a folder as a tar of faas-cli.
func packed(t *testing.T, dir, image string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "req.tar")
	config := &builder.BuildConfig{Image: image, BuildArgs: map[string]string{"A": "b"}, Platforms: []string{"linux/mips"}}
	if err := builder.MakeTar(name, dir, config); err != nil {
		t.Fatal(err)
	}
	return name
}

// checkModel reads the model as the provider does before it deploys one.
func checkModel(_ context.Context, file string) error {
	m, err := model.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = m.Graph(1)
	return err
}

// nothingLeft fails if the builder has left files other than the bundles.
func nothingLeft(t *testing.T, root string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(root, bundle.StagingDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range left {
		t.Errorf("left behind: %s", e.Name())
	}
}

const program = "name: greet\nprocess: ./handler\nmode: http\nenv: {GREETING: Hello}\n"

func TestBuild(t *testing.T) {
	for _, test := range []struct {
		name, image string
		files       map[string]string
		want        bundle.Manifest
		has, hasNot []string
	}{
		{name: "a program", image: "team/greet:v1",
			files: map[string]string{"bundle.yaml": program, "handler": "#!/bin/sh\ncat\n", "sub/data": "1", "Dockerfile": "FROM scratch\n"},
			want:  bundle.Manifest{Name: "greet", Process: "./handler", Mode: "http", Env: map[string]string{"GREETING": "Hello"}},
			has:   []string{"handler", "sub/data", "Dockerfile"}},
		{name: "a template's program", image: "localhost:5000/greet",
			files: map[string]string{"bundle.yaml": "name: t\nprocess: python3 index.py\n", "index.py": "", "function/handler.py": "", "function/bundle.yaml": program},
			want:  bundle.Manifest{Name: "t", Process: "python3 index.py"},
			has:   []string{"index.py", "function/handler.py"}},
		{name: "the function's own program", image: "docker.io/library/greet:latest",
			files: map[string]string{"Dockerfile": "FROM scratch\n", "function/bundle.yaml": program, "function/handler": "#!/bin/sh\n", "function/function/x": "", "function/Dockerfile/x": ""},
			want:  bundle.Manifest{Name: "greet", Process: "./handler", Mode: "http", Env: map[string]string{"GREETING": "Hello"}},
			has:   []string{"handler", "function/x", "Dockerfile/x"}},
		{name: "a model with its manifest", image: "id:v1",
			files: map[string]string{"bundle.yaml": "name: id\nengine: onnx\nmodel: m/a.onnx\n", "m/a.onnx": "", "b.onnx": ""},
			want:  bundle.Manifest{Name: "id", Engine: "onnx", Model: "m/a.onnx"}, has: []string{"b.onnx"}},
		{name: "a model alone", image: "ghcr.io/team/id:v1",
			files: map[string]string{"a.onnx": "", "README": "x"},
			want:  bundle.Manifest{Name: "id", Engine: "onnx", Model: "a.onnx"}, has: []string{"README"}},
		{name: "a model in a template", image: "id:v1",
			files: map[string]string{"Dockerfile": "FROM scratch\n", "template.yml": "", "function/a.onnx": "", "function/labels.txt": "x"},
			want:  bundle.Manifest{Name: "id", Engine: "onnx", Model: "a.onnx"}, has: []string{"labels.txt"}, hasNot: []string{"function", "Dockerfile"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, s := serve(t, Options{CheckModel: checkModel})
			tar := packed(t, folder(t, test.files), test.image)
			for range 2 { // The second replaces the first.
				result, err := client(t, s, secret).Build(tar)
				if err != nil {
					t.Fatal(err)
				}
				if result.Status != builder.BuildSuccess || result.Image != test.image || result.Error != "" || len(result.Log) < 3 {
					t.Errorf("%+v", result)
				}
				b, err := bundle.Open(h.options.Root, test.image)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, b, test.want, test.has, test.hasNot)
			}
			nothingLeft(t, h.options.Root)
		})
	}
}

func compare(t *testing.T, b *bundle.Bundle, want bundle.Manifest, has, hasNot []string) {
	t.Helper()
	if b.Name != want.Name || b.Engine != want.Engine || b.Model != want.Model || b.Process != want.Process || b.Mode != want.Mode || len(b.Env) != len(want.Env) {
		t.Errorf("manifest %+v, want %+v", b.Manifest, want)
	}
	for _, name := range has {
		info, err := os.Stat(filepath.Join(b.Dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		wantMode := os.FileMode(0o644)
		if name == "handler" {
			wantMode = 0o755
		}
		if info.Mode() != wantMode {
			t.Errorf("%s has mode %v, want %v", name, info.Mode(), wantMode)
		}
	}
	for _, name := range hasNot {
		if _, err := os.Lstat(filepath.Join(b.Dir, name)); err == nil {
			t.Errorf("%s is in the bundle", name)
		}
	}
	if info, err := os.Stat(b.Dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// faas-cli sends a template with a handler copied over it, and reads the answer as a
// stream.
func TestStream(t *testing.T) {
	h, s := serve(t, Options{})
	template := folder(t, map[string]string{"sh/Dockerfile": "FROM scratch\n", "sh/bundle.yaml": "name: sh\nprocess: ./index.sh\n", "sh/index.sh": "#!/bin/sh\nexec function/handler\n"})
	handler := folder(t, map[string]string{"handler": "#!/bin/sh\ncat\n"})
	into := t.TempDir()
	dir, err := builder.CreateBuildContext("echo", handler, "sh", nil, builder.WithTemplateDir(template), builder.WithBuildDir(into))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := client(t, s, secret).BuildWithStream(packed(t, dir, "echo:v2"))
	if err != nil {
		t.Fatal(err)
	}
	var last builder.BuildResult
	var log []string
	for result, err := range stream.Results() {
		if err != nil {
			t.Fatal(err)
		}
		if last.Status != "" && last.Status != builder.BuildInProgress {
			t.Errorf("after the last result: %+v", result)
		}
		last, log = result, append(log, result.Log...)
	}
	if last.Status != builder.BuildSuccess || last.Image != "echo:v2" {
		t.Errorf("%+v", last)
	}
	told := strings.Join(log, "\n")
	for _, words := range []string{"Unpacked: 4 files", "Build arguments are not used", "not among the platforms linux/mips", "echo/v2"} {
		if !strings.Contains(told, words) {
			t.Errorf("the log has no %q:\n%s", words, told)
		}
	}
	b, err := bundle.Open(h.options.Root, "echo:v2")
	if err != nil || b.Process != "./index.sh" {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(b.Dir, "function/handler")); err != nil {
		t.Error(err)
	}
}

func TestFailed(t *testing.T) {
	for _, test := range []struct {
		name, image string
		files       map[string]string
		words       string
	}{
		{"nothing to run", "a", map[string]string{"x": ""}, "neither a bundle.yaml nor a model; add bundle.yaml"},
		{"a Dockerfile", "a", map[string]string{"Dockerfile": "FROM alpine\nENV fprocess=cat\n"}, "no container engine"},
		{"two models", "a", map[string]string{"a.onnx": "", "function/b.onnx": ""}, "2 models, a.onnx, function/b.onnx"},
		{"a broken model", "a", map[string]string{"a.onnx": "nonsense"}, "model a.onnx"},
		{"a broken manifest", "a", map[string]string{"bundle.yaml": "name: a\nproces: x\n"}, "proces"},
		{"no process", "a", map[string]string{"bundle.yaml": "name: a\nprocess: ./handler\n"}, `no file "handler"`},
		{"a process without the right", "a", map[string]string{"bundle.yaml": "name: a\nprocess: ./handler\n", "handler": "cat"}, "chmod +x"},
		{"an image that leads out", "../a", map[string]string{"bundle.yaml": program}, "invalid image name"},
		{"a digest", "a@sha256:0", map[string]string{"bundle.yaml": program}, "has no digest"},
		{"a built-in image", "functions/alpine", map[string]string{"bundle.yaml": program}, "built in and other functions use it"},
		{"a built-in image of Docker's", "docker.io/functions/alpine:latest", map[string]string{"bundle.yaml": program}, "built in"},
		{"no image", "", map[string]string{"bundle.yaml": program}, "image is missing"},
		{"inside another bundle", "there/v1:x", map[string]string{"bundle.yaml": "name: a\nprocess: cat\n"}, "inside the bundle there/v1"},
		{"in the place of a folder", "other", map[string]string{"bundle.yaml": "name: a\nprocess: cat\n"}, "holds other files"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, s := serve(t, Options{CheckModel: checkModel})
			root := h.options.Root
			if err := errors.Join(os.MkdirAll(filepath.Join(root, "there/v1"), 0o755), os.WriteFile(filepath.Join(root, "there/v1/bundle.yaml"), nil, 0o644),
				os.MkdirAll(filepath.Join(root, "other/latest/x"), 0o755)); err != nil {
				t.Fatal(err)
			}
			tar := packed(t, folder(t, test.files), test.image)
			result, err := client(t, s, secret).Build(tar)
			if err != nil {
				t.Fatal(err)
			}
			if result.Status != builder.BuildFailed || !strings.Contains(result.Error, test.words) {
				t.Errorf("%+v, want %q", result, test.words)
			}
			nothingLeft(t, root)
			if _, err := os.Stat(filepath.Join(root, "a")); err == nil {
				t.Error("something was put in the bundle's place")
			}
		})
	}
}

func TestOldBundleStaysWhenABuildFails(t *testing.T) {
	h, s := serve(t, Options{})
	c := client(t, s, secret)
	good := packed(t, folder(t, map[string]string{"bundle.yaml": "name: a\nprocess: cat\n"}), "a")
	bad := packed(t, folder(t, map[string]string{"bundle.yaml": "name: a\n"}), "a")
	if result, err := c.Build(good); err != nil || result.Status != builder.BuildSuccess {
		t.Fatalf("%+v, %v", result, err)
	}
	if result, err := c.Build(bad); err != nil || result.Status != builder.BuildFailed {
		t.Fatalf("%+v, %v", result, err)
	}
	if b, err := bundle.Open(h.options.Root, "a"); err != nil || b.Process != "cat" {
		t.Errorf("%+v, %v", b, err)
	}
}

// A process that runs from a bundle keeps that bundle when it is replaced.
func TestReplacedBundleStaysWhileItIsHeld(t *testing.T) {
	h, s := serve(t, Options{})
	build := func(text string) {
		t.Helper()
		files := map[string]string{"bundle.yaml": "name: a\nprocess: cat\n", "data": text}
		if result, err := client(t, s, secret).Build(packed(t, folder(t, files), "a")); err != nil || result.Status != builder.BuildSuccess {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	build("first")
	b, err := bundle.Open(h.options.Root, "a")
	if err != nil {
		t.Fatal(err)
	}
	held, err := bundle.Hold(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	inside, err := os.OpenRoot(b.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	build("second")
	build("third")
	if text, err := inside.ReadFile("data"); err != nil || string(text) != "first" {
		t.Errorf("the one that is held has %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(b.Dir, "data")); err != nil || string(text) != "third" {
		t.Errorf("the one in place has %q, %v", text, err)
	}
	if err := errors.Join(held.Close(), h.Sweep()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, h.options.Root)
}

// A builder that publishes leaves nothing below the root.
func TestPublish(t *testing.T) {
	var published []string
	failure := errors.New("the registry is away")
	h, s := serve(t, Options{Publish: func(_ context.Context, image string, b *bundle.Bundle, say func(string, ...any)) error {
		if image == "greet:bad" {
			return failure
		}
		if _, err := os.Stat(filepath.Join(b.Dir, "handler")); err != nil {
			return err
		}
		say("Pushed %s.", b.Name)
		published = append(published, image)
		return nil
	}})
	files := folder(t, map[string]string{"bundle.yaml": program, "handler": "#!/bin/sh\ncat\n"})
	result, err := client(t, s, secret).Build(packed(t, files, "greet:v1"))
	if err != nil || result.Status != builder.BuildSuccess || len(published) != 1 || published[0] != "greet:v1" || result.Log[len(result.Log)-1] != "Pushed greet." {
		t.Errorf("%+v, %v, published %q", result, err, published)
	}
	result, err = client(t, s, secret).Build(packed(t, files, "greet:bad"))
	if err != nil || result.Status != builder.BuildFailed || !strings.Contains(result.Error, failure.Error()) {
		t.Errorf("%+v, %v", result, err)
	}
	left, err := filepath.Glob(filepath.Join(h.options.Root, "[^.]*"))
	if err != nil || len(left) > 0 {
		t.Errorf("below the root: %q, %v", left, err)
	}
	nothingLeft(t, h.options.Root)
}
