package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model/bundle"
)

const (
	// compileTimeout is how long compiling a handler may take, including downloads of
	// its imports.
	compileTimeout = 10 * time.Minute
	// maxErrorLines is the number of the compiler's last lines that the client gets.
	maxErrorLines = 20
	// goModule is the file in the root directory of a Go module.
	goModule = "go.mod"
)

// compileHandler compiles an ONNX model's handler in Go. Its module is at the top of the
// context, as in the template onnx-go-infer, or beside the manifest. Without a module, or
// without Go on this machine, the context must contain the compiled program. Errors of
// the manifest are left to check.
func compileHandler(ctx context.Context, dir string, answer *answer) error {
	sub, ok := manifestPlace(dir)
	if !ok {
		return nil
	}
	inside, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer inside.Close()
	text, err := inside.ReadFile(filepath.Join(sub, bundle.ManifestFile))
	if err != nil {
		return fmt.Errorf("read %s: %w", bundle.ManifestFile, err)
	}
	m, err := bundle.ParseManifest(text)
	if err != nil || !m.Processed() || m.HandlerProgram() == m.Handler {
		return nil
	}
	program := filepath.Join(sub, m.HandlerProgram())
	module, compiler, err := compilable(inside, dir, sub)
	if err != nil {
		if _, missing := inside.Lstat(program); missing == nil {
			answer.log("The handler %s is taken as it was sent: %v.", m.HandlerProgram(), err)
			return nil
		}
		return fmt.Errorf("handler %s: %w; or compile it before you send it, as the template's Dockerfile does, with `CGO_ENABLED=0 go build -o %s .`", m.Handler, err, filepath.ToSlash(program))
	}
	began := time.Now()
	if err := compile(ctx, compiler, module, inside, program); err != nil {
		return fmt.Errorf("handler %s: %w", m.Handler, err)
	}
	answer.log("The handler %s was compiled in %.1f s.", m.Handler, time.Since(began).Seconds())
	return nil
}

// compilable returns the directory of the program's module and the path of Go.
func compilable(inside *os.Root, dir, sub string) (module, compiler string, err error) {
	for _, place := range []string{".", sub} {
		if _, err := inside.Lstat(filepath.Join(place, goModule)); err == nil {
			module = filepath.Join(dir, place)
			break
		}
	}
	if module == "" {
		return "", "", errors.New("there is no " + goModule + " with a program; write lang: onnx-go-infer into the stack file, whose template has one")
	}
	if compiler, err = exec.LookPath("go"); err != nil {
		return "", "", errors.New("there is no Go on the provider's machine to compile it with; install it, https://go.dev/doc/install")
	}
	return module, compiler, nil
}

// compile compiles a module's program to a file of the context. It replaces a link of
// that name.
func compile(ctx context.Context, compiler, module string, inside *os.Root, program string) error {
	work, err := os.MkdirTemp(inside.Name(), "compiled-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	made := filepath.Join(work, "handler")
	c := exec.CommandContext(ctx, compiler, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s", "-o", made, ".")
	var said bytes.Buffer
	c.Dir, c.Stdout, c.Stderr, c.WaitDelay = module, &said, &said, time.Second
	// The program is static, for images without a C library. Go must not download
	// another version of itself.
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOTOOLCHAIN=local", "GOFLAGS=")
	if err := c.Run(); err != nil {
		return fmt.Errorf("it cannot be compiled: %w: %s", errors.Join(ctx.Err(), err), lastLines(said.String(), maxErrorLines))
	}
	if err := inside.Remove(program); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return inside.Rename(filepath.Join(filepath.Base(work), "handler"), program)
}

// lastLines returns the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
