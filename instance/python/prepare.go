package python

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// preparedFile is what a prepared bundle's directory is told by.
const preparedFile = "python.json"

// Prepared is a bundle with all that it needs to run on this machine. It does not
// change when the bundle is replaced.
type Prepared struct {
	// Dir holds a copy of the bundle's files.
	Dir string `json:"dir"`
	// Engine, Model and Handler are the manifest's.
	Engine  string `json:"engine"`
	Model   string `json:"model"`
	Handler string `json:"handler"`
	// Environment names the virtual environment, Python is its program.
	Environment string `json:"environment"`
	Python      string `json:"python"`
	// Warm are the modules that a warm process imports; one with @ before it is the
	// name of a distribution.
	Warm []string `json:"warm"`
}

// IsManifest reports whether a model's file is the manifest of a bundle that runs
// in Python.
func IsManifest(file string) bool { return filepath.Base(file) == bundle.ManifestFile }

// IsPrepared reports whether a directory is one that [Prepare] made.
func IsPrepared(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, preparedFile))
	return err == nil
}

// Read reads what [Prepare] made.
func Read(dir string) (Prepared, error) {
	text, err := os.ReadFile(filepath.Join(dir, preparedFile))
	if err != nil {
		return Prepared{}, fmt.Errorf("the prepared model: %w", err)
	}
	var p Prepared
	if err := json.Unmarshal(text, &p); err != nil {
		return Prepared{}, fmt.Errorf("the prepared model in %s: %w", dir, err)
	}
	return p, nil
}

// open opens the bundle that has a manifest.
func open(manifest string) (*bundle.Bundle, error) {
	b, err := bundle.OpenDir(filepath.Dir(manifest))
	if err != nil {
		return nil, err
	}
	if !b.InPython() {
		return nil, fmt.Errorf("%s: the engine %q does not run in Python", manifest, b.Engine)
	}
	return b, nil
}

// Check looks at a bundle without installing or running any of it: the files that
// the manifest names, and that the handler can be read and has handle.
func Check(ctx context.Context, manifest string) error {
	b, err := open(manifest)
	if err != nil {
		return err
	}
	if b.Handler == "" {
		return nil
	}
	return checkHandler(ctx, b)
}

// looker prints what is wrong with a handler's source.
const looker = `import ast, sys
try:
    tree = ast.parse(open(sys.argv[1], "rb").read(), sys.argv[2])
except (SyntaxError, ValueError) as e:
    sys.exit(f"{sys.argv[2]}, line {getattr(e, 'lineno', 0)}: {type(e).__name__}: {getattr(e, 'msg', e)}")
names = set()
for node in tree.body:
    names |= {getattr(node, "name", "")} | {t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)}
    names |= {a.asname or a.name for a in getattr(node, "names", []) if isinstance(a, ast.alias)}
if not names & {"handle", "*"}:
    sys.exit(f"{sys.argv[2]} has no function handle(batch)")
`

func checkHandler(ctx context.Context, b *bundle.Bundle) error {
	env, err := environment.Find(ctx, b.Engine, "")
	if err != nil {
		return err
	}
	program := env.Python
	if !env.Made() { // Any Python reads the same language.
		program = environment.Program()
	}
	c := exec.CommandContext(ctx, program, "-I", "-c", looker, filepath.Join(b.Dir, b.Handler), b.Handler)
	text, err := c.CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}

// Hash identifies a bundle's content: every file, and the environment.
func Hash(manifest string) (string, error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	env, err := environment.Find(context.Background(), b.Engine, requirements(b))
	if err != nil {
		return "", err
	}
	fmt.Fprintf(sum, "python %s\n", env.Hash)
	err = filepath.WalkDir(b.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(b.Dir, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(sum, "\n%q\n", name)
		_, err = io.Copy(sum, f)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the bundle: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Prepare makes a bundle's environment and keeps a copy of its files below cache,
// once; it returns the directory.
func Prepare(ctx context.Context, manifest, cache string) (dir string, err error) {
	b, err := open(manifest)
	if err != nil {
		return "", err
	}
	env, err := environment.Ensure(ctx, b.Engine, requirements(b))
	if err != nil {
		return "", err
	}
	hash, err := Hash(manifest)
	if err != nil {
		return "", err
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "python-"+hash[:32])
	if IsPrepared(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, ".python-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := os.CopyFS(filepath.Join(work, "bundle"), os.DirFS(b.Dir)); err != nil {
		return "", fmt.Errorf("keep the bundle: %w", err)
	}
	p := Prepared{
		Dir: filepath.Join(dir, "bundle"), Engine: b.Engine, Model: b.Model, Handler: b.Handler,
		Environment: env.Hash, Python: env.Python, Warm: warmModules(b),
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(work, preparedFile), text, 0o644); err != nil {
		return "", err
	}
	if err := os.Rename(work, dir); err != nil && !IsPrepared(dir) {
		return "", fmt.Errorf("keep the bundle: %w", err)
	}
	return dir, nil
}

// requirements is the file's path, "" if there is none.
func requirements(b *bundle.Bundle) string {
	if b.Requirements == "" {
		return ""
	}
	return filepath.Join(b.Dir, b.Requirements)
}

// warmModules are what is worth importing before an instance starts.
func warmModules(b *bundle.Bundle) []string {
	modules := []string{"numpy"}
	if b.Engine == bundle.EngineTensorFlow {
		modules = append(modules, "tensorflow", "keras")
	}
	text, err := os.ReadFile(requirements(b))
	if err != nil {
		return modules // There are none.
	}
	for line := range strings.Lines(string(text)) {
		end := strings.IndexFunc(line, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
		})
		if end < 0 {
			end = len(line)
		}
		if name := line[:end]; name != "" && name[0] != '-' {
			modules = append(modules, "@"+name)
		}
	}
	return modules
}
