package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/openfaas/go-sdk/builder"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// A handler in Go is compiled, or the error says why not and what to do. A handler that
// was sent compiled needs no Go.
func TestHandlersInGo(t *testing.T) {
	const (
		manifest = "engine: onnx\nmodel: model.onnx\nhandler: handler.go\n"
		module   = "module handler\n\ngo 1.22\n"
		main     = "package main\n\nfunc main() { println(answer) }\n"
	)
	for name, c := range map[string]struct {
		files   map[string]string
		without bool // Go
		wrong   string
		log     string
		says    string
	}{
		"the module at the top": {files: map[string]string{
			"go.mod": module, "main.go": main, "answer.go": "package main\n\nconst answer = 42\n", "function/handler.go": "package function\n",
			"function/bundle.yaml": manifest, "function/model.onnx": "",
		}, log: "The handler handler.go was compiled in ", says: "42\n"},
		"the module in the bundle": {files: map[string]string{
			"go.mod": module, "handler.go": main, "answer.go": "package main\n\nconst answer = 42\n", "bundle.yaml": manifest, "model.onnx": "",
		}, log: "was compiled in", says: "42\n"},
		"in the place of what was sent": {files: map[string]string{
			"go.mod": module, "handler.go": main, "answer.go": "package main\n\nconst answer = 42\n", "handler": "#!/bin/sh\necho old\n", "bundle.yaml": manifest, "model.onnx": "",
		}, says: "42\n"},
		"not to be compiled": {files: map[string]string{
			"go.mod": module, "main.go": main, "function/handler.go": "package function\n", "function/bundle.yaml": manifest, "function/model.onnx": "",
		}, wrong: "handler handler.go: it cannot be compiled: exit status 1: # handler\n./main.go:3:23: undefined: answer"},
		"no module": {files: map[string]string{
			"function/handler.go": "package function\n", "function/bundle.yaml": manifest, "function/model.onnx": "",
		}, wrong: "write lang: onnx-go-infer into the stack file"},
		"no Go": {without: true, files: map[string]string{
			"go.mod": module, "main.go": main, "function/handler.go": "package function\n", "function/bundle.yaml": manifest, "function/model.onnx": "",
		}, wrong: "`CGO_ENABLED=0 go build -o function/handler .`"},
		"no Go, and sent": {without: true, files: map[string]string{
			"go.mod": module, "main.go": main, "function/handler.go": "package function\n", "function/bundle.yaml": manifest, "function/model.onnx": "", "function/handler": "#!/bin/sh\necho sent >&2\n",
		}, log: "The handler handler is taken as it was sent: there is no Go on the provider's machine", says: "sent\n"},
		"a program": {without: true, files: map[string]string{
			"function/bundle.yaml": strings.Replace(manifest, ".go", "", 1), "function/model.onnx": "", "function/handler": "#!/bin/sh\necho sent >&2\n",
		}, says: "sent\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, root := folder(t, c.files), t.TempDir()
			if c.without {
				t.Setenv("PATH", t.TempDir())
			}
			_, s := serve(t, Options{Root: root})
			result, err := client(t, s, secret).Build(packed(t, dir, "team/spam:v1"))
			if c.wrong != "" {
				if err != nil || result.Status != builder.BuildFailed || !strings.Contains(result.Error, c.wrong) {
					t.Errorf("%+v, %v, want %q", result, err, c.wrong)
				}
				nothingLeft(t, root)
				return
			}
			if log := strings.Join(result.Log, "\n"); err != nil || result.Status != builder.BuildSuccess || !strings.Contains(log, c.log) {
				t.Fatalf("%+v, %v, want %q", result, err, c.log)
			}
			b, err := bundle.Open(root, "team/spam:v1")
			if err != nil {
				t.Fatal(err)
			}
			said, err := (&exec.Cmd{Path: filepath.Join(b.Dir, b.HandlerProgram())}).CombinedOutput()
			if err != nil || string(said) != c.says {
				t.Errorf("it says %q, %v", said, err)
			}
			nothingLeft(t, root)
		})
	}
}

// The compiled program replaces a link of its name, wherever the link leads.
func TestCompilingFollowsNoLinks(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(outside, []byte("precious"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := folder(t, map[string]string{
		"go.mod": "module handler\n", "handler.go": "package main\n\nfunc main() {}\n", "bundle.yaml": "engine: onnx\nmodel: m.onnx\nhandler: handler.go\n", "m.onnx": "",
	})
	if err := os.Symlink(outside, filepath.Join(dir, "handler")); err != nil {
		t.Fatal(err)
	}
	if err := compileHandler(t.Context(), dir, &answer{}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "precious" {
		t.Errorf("what the link led to is %q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(dir, "handler")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the program is %v, %v", info, err)
	}
}
