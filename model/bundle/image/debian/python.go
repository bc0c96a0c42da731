package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// Interpreter lists the entries of a layer with the packages of [Python] and their
// dependencies, and returns Python's version, as 3.11. If this machine has the same
// version of Python, it compiles the standard library, because a new pod has no
// compiled files.
func Interpreter(ctx context.Context, files []string) (entries []image.Entry, version string, err error) {
	t := tree{entries: make(map[string]image.Entry)}
	if err := t.add(ctx, files); err != nil {
		return nil, "", err
	}
	for name, e := range t.entries {
		if m := interpreter.FindStringSubmatch(name); m != nil && e.Mode.IsRegular() {
			version = m[1]
		}
	}
	if version == "" {
		return nil, "", errors.New("the packages have no Python; is python3 among them?")
	}
	if err := t.compile(ctx, version); err != nil {
		return nil, "", fmt.Errorf("compile Python's library: %w", err)
	}
	return t.list(), version, nil
}

var interpreter = regexp.MustCompile(`^usr/bin/python(3\.[0-9]+)$`)

// compile adds the compiled files of the standard library.
func (t *tree) compile(ctx context.Context, version string) (err error) {
	program, err := exec.LookPath("python" + version)
	if err != nil {
		return nil // Another version's compiled files are useless.
	}
	dir, err := os.MkdirTemp("", "faas-infer-python-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	library := path.Join("usr/lib", "python"+version)
	if err := t.extract(dir, library); err != nil {
		return err
	}
	// The library has some files with deliberate errors, so the exit status is ignored.
	var failed *exec.ExitError
	// With SOURCE_DATE_EPOCH, Python would compare each source's hash at each import instead of its time.
	compile := []string{"-I", "-m", "compileall", "-qq", "--invalidation-mode", "timestamp", "-s", dir, "-p", "/"}
	if _, err := run(ctx, dir, program, append(compile, filepath.Join(dir, library))...); err != nil && !errors.As(err, &failed) {
		return err
	}
	found, err := image.Directory(filepath.Join(dir, library), library)
	if err != nil {
		return err
	}
	for _, e := range found {
		if path.Ext(e.Name) != ".pyc" {
			continue
		}
		text, err := content(e)
		if err != nil {
			return err
		}
		t.put(image.Bytes(e.Name, 0o644, text))
	}
	return nil
}

// extract writes the sources of a library to dir, with the time that they have in
// images.
func (t *tree) extract(dir, library string) error {
	for name, e := range t.entries {
		if !strings.HasPrefix(name, library+"/") || path.Ext(name) != ".py" || e.Open == nil {
			continue
		}
		text, err := content(e)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		err = errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, text, 0o644), os.Chtimes(file, image.Epoch, image.Epoch))
		if err != nil {
			return err
		}
	}
	return nil
}

func content(e image.Entry) ([]byte, error) {
	r, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
