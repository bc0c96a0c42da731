package importing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/command/importing/documents"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// StackFile is the file with the functions in the directory that [Import.Write] makes.
const StackFile = "stack.yml"

// Errors of a directory to write.
var (
	// ErrExists: it exists and is not empty.
	ErrExists = errors.New("it exists and is not empty")
	// ErrOverSource: it equals, contains or lies in what is imported, so replacing could delete that.
	ErrOverSource = errors.New("it may not overlap what is imported, as --force could delete that")
	// ErrForeign: something in it has the name of what is to be written, and no import made it.
	ErrForeign = errors.New("no import made it")
)

// Write makes the directory of the options: a bundle for each function with files, in a directory of its
// name, and stack.yml. It prepares all of it beside the directory first, so nothing is left of an import that
// fails. An existing directory is an error that wraps [ErrExists]; with replace, the bundles' directories and
// stack.yml in it are replaced, and the rest stays. Then the error wraps [ErrOverSource] for a directory that
// overlaps a source, and [ErrForeign] if what is in the way is no bundle.
func (im *Import) Write(ctx context.Context, replace bool) error {
	if err := im.write(ctx, replace); err != nil {
		return fmt.Errorf("write %s: %w", im.options.Out, err)
	}
	return nil
}

func (im *Import) write(ctx context.Context, replace bool) (err error) {
	out := im.options.Out
	entries, err := os.ReadDir(out)
	switch {
	case err == nil && len(entries) > 0 && !replace:
		return fmt.Errorf("%w; give another one with --out, or --force to replace what this import writes", ErrExists)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if len(entries) > 0 {
		if err := checkApart(out, im.options, im.trees); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(out)), 0o755); err != nil {
		return err
	}
	staged, err := os.MkdirTemp(filepath.Dir(filepath.Clean(out)), ".import-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staged)) }()
	for _, m := range im.Models {
		if m.bundle == nil || m.Function == "" {
			continue
		}
		if err := m.write(ctx, staged); err != nil {
			return fmt.Errorf("write the bundle of %s: %w", m.Function, err)
		}
	}
	text, err := im.stack()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(staged, StackFile), text, 0o644); err != nil {
		return err
	}
	return moveAll(staged, out)
}

// checkApart returns an error if an existing directory equals, contains or lies in what is imported.
func checkApart(out string, o Options, trees []*documents.Tree) error {
	sources := slices.DeleteFunc(slices.Clone(o.Paths), func(path string) bool { return path == "-" })
	sources = append(sources, slices.Sorted(maps.Values(o.Files))...)
	for _, t := range trees {
		sources = append(sources, t.Given)
	}
	for _, source := range sources {
		inSource, err := within(out, source)
		if err != nil {
			return err
		}
		inOut, err := within(source, out)
		if err != nil {
			return err
		}
		if inSource || inOut {
			return fmt.Errorf("%w: %s; give another directory with --out", ErrOverSource, source)
		}
	}
	return nil
}

// within reports whether a path is a directory or file, or lies below it. It follows links, and compares the
// files themselves, so the spelling of the paths does not matter.
func within(path, dir string) (bool, error) {
	want, err := os.Stat(dir)
	if err != nil {
		return false, err
	}
	at, err := filepath.Abs(path)
	if err != nil {
		return false, err
	}
	at, err = filepath.EvalSymlinks(at)
	if err != nil {
		return false, err
	}
	for {
		is, err := os.Stat(at)
		if err != nil {
			return false, err
		}
		if os.SameFile(is, want) {
			return true, nil
		}
		if at == filepath.Dir(at) {
			return false, nil
		}
		at = filepath.Dir(at)
	}
}

// moveAll moves everything in a directory into another one. It changes nothing if something there that is to
// be replaced is not of an import.
func moveAll(from, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := checkReplaceable(filepath.Join(to, e.Name()), e.IsDir()); err != nil {
			return err
		}
	}
	for _, e := range entries {
		target := filepath.Join(to, e.Name())
		if err := os.RemoveAll(target); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(from, e.Name()), target); err != nil {
			return err
		}
	}
	return nil
}

// checkReplaceable returns an error if something is at a path that [Import.Write] does not make: a directory
// without bundle.yaml, which is not empty, in the place of a directory, or a directory in that of a file. Files
// to convert are in a directory of a name that no function has.
func checkReplaceable(target string, dir bool) error {
	info, err := os.Lstat(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	foreign := fmt.Errorf("%s is in the way, and %w; move it, or give another directory with --out", target, ErrForeign)
	if info.IsDir() != dir {
		return foreign
	}
	if !dir || filepath.Base(target) == asideDir {
		return nil
	}
	names, err := os.ReadDir(target)
	if err != nil {
		return err
	}
	isManifest := func(e fs.DirEntry) bool { return e.Name() == bundle.ManifestFile }
	if len(names) > 0 && !slices.ContainsFunc(names, isManifest) {
		return foreign
	}
	return nil
}

// write writes the bundle of a function into a directory. It refuses a model whose
// copied files turn out to be none.
func (m *Model) write(ctx context.Context, staged string) error {
	dir := filepath.Join(staged, m.Function)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range m.bundle.files {
		if err := f.write(ctx, dir); err != nil {
			return err
		}
	}
	if c := m.bundle.convert; c != nil && c.tree.Dir == "" {
		aside := file{to: path.Base(c.from), tree: c.tree, from: c.from}
		if err := aside.write(ctx, filepath.Join(staged, asideDir, m.Function)); err != nil {
			return err
		}
	}
	if err := m.bundle.manifest.Validate(); err != nil {
		return err
	}
	if err := m.bundle.manifest.WriteFile(dir); err != nil {
		return err
	}
	if m.bundle.convert != nil {
		return nil // The model's file is made later.
	}
	err := m.checkBundle(dir)
	if err == nil {
		return nil
	}
	m.refuse("%s", strings.ReplaceAll(err.Error(), staged, strings.TrimSuffix(m.From, "/")))
	m.Function = ""
	return os.RemoveAll(dir)
}

// checkBundle checks a written bundle as a provider would.
func (m *Model) checkBundle(dir string) error {
	b, err := bundle.OpenDir(dir)
	if err != nil {
		return err
	}
	if b.Engine != bundle.EngineONNX {
		return nil
	}
	_, err = model.ReadGraph(filepath.Join(dir, b.Model))
	return err
}

// write copies the file into a directory.
func (f file) write(ctx context.Context, dir string) (err error) {
	if !fs.ValidPath(f.to) {
		return fmt.Errorf("%q leads out of the bundle", f.to)
	}
	to := filepath.Join(dir, filepath.FromSlash(f.to))
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if f.tree == nil {
		return os.WriteFile(to, f.text, 0o644)
	}
	in, err := f.tree.Open(f.from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	copied, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, copied.Close()) }()
	// An archive may say that a file is small and then give more.
	n, err := io.Copy(copied, io.LimitReader(cancellable{ctx, in}, info.Size()+1))
	if err == nil && n > info.Size() {
		err = fmt.Errorf("%s is longer than it should be", f.from)
	}
	return err
}

// cancellable is a reader that ends with its context.
type cancellable struct {
	ctx context.Context
	io.Reader
}

// Read implements [io.Reader].
func (c cancellable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(b)
}

// stackOf is a stack.yml.
type stackOf struct {
	Version  string `yaml:"version"`
	Provider struct {
		Name    string `yaml:"name"`
		Gateway string `yaml:"gateway"`
	} `yaml:"provider"`
	Functions map[string]function `yaml:"functions"`
}

// stack returns the stack.yml with all functions.
func (im *Import) stack() ([]byte, error) {
	functions := map[string]function{}
	for _, m := range im.Models {
		if m.Function != "" {
			functions[m.Function] = m.deployment
		}
	}
	var text bytes.Buffer
	e := yaml.NewEncoder(&text)
	e.SetIndent(2)
	s := stackOf{Version: "1.0", Functions: functions}
	s.Provider.Name, s.Provider.Gateway = "openfaas", "http://127.0.0.1:8080"
	if err := e.Encode(s); err != nil {
		return nil, err
	}
	// faas-cli replaces ${NAME} by a variable of its environment.
	lines := strings.ReplaceAll(text.String(), "${", "$${")
	lines = strings.ReplaceAll(lines, ": "+Unset+"\n",
		": "+Unset+" # the longest time from a request to its answer, such as 200ms\n")
	return []byte(lines), nil
}
