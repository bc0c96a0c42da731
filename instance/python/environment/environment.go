// Package environment makes the virtual environments in which functions' Python
// runs: one for each set of requirements, in the user's cache, made once.
package environment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// base are the requirements of the engines themselves.
//
//go:embed base
var base embed.FS

// ProgramEnv names the Python that environments are made with; python3 if it is
// empty.
const ProgramEnv = "FAAS_INFER_PYTHON"

// ReadyEnv names the program of a Python that has all that the function needs, as in
// an image that was built with it. It is used as it is.
const ReadyEnv = "FAAS_INFER_PYTHON_READY"

// ReadyName is the name of such an environment.
const ReadyName = "ready"

// ErrRequirements is wrapped where pip cannot install what is asked for.
var ErrRequirements = errors.New("the requirements cannot be installed")

// Environment is a virtual environment.
type Environment struct {
	// Hash names its content: Python's version and the requirements.
	Hash string
	// Python is its program.
	Python string
}

// Find tells an engine's environment, made or not. The file of requirements may be
// "".
func Find(ctx context.Context, engine, requirements string) (Environment, error) {
	text, err := content(ctx, engine, requirements)
	if err != nil {
		return Environment{}, err
	}
	root, err := directory()
	if err != nil {
		return Environment{}, err
	}
	sum := sha256.Sum256(text)
	hash := hex.EncodeToString(sum[:8])
	if ready := os.Getenv(ReadyEnv); ready != "" {
		return Environment{Hash: hash, Python: ready}, nil
	}
	return Environment{Hash: hash, Python: filepath.Join(root, hash, "bin", "python")}, nil
}

// Made reports whether the environment is there.
func (e Environment) Made() bool {
	_, err := os.Stat(e.Python)
	return err == nil
}

// Packages is the directory in which a made environment has its packages, and the
// version of its Python, as 3.11.
func (e Environment) Packages() (dir, version string, err error) {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(e.Python)), "lib", "python*", "site-packages"))
	if err != nil {
		return "", "", err
	}
	if len(found) != 1 {
		return "", "", fmt.Errorf("the environment of %s has %d directories of packages, not one", e.Python, len(found))
	}
	return found[0], strings.TrimPrefix(filepath.Base(filepath.Dir(found[0])), "python"), nil
}

// Ensure makes an engine's environment unless it is there. A package that pip cannot install
// is an error that wraps [ErrRequirements] and has its log's last lines. Of several
// who ask at the same time one makes it.
func Ensure(ctx context.Context, engine, requirements string) (Environment, error) {
	e, err := Find(ctx, engine, requirements)
	if err != nil || e.Made() {
		return e, err
	}
	root, err := directory()
	if err != nil {
		return e, err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return e, err
	}
	lock, err := os.OpenFile(filepath.Join(root, ".lock-"+e.Hash), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return e, err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return e, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if e.Made() {
		return e, nil
	}
	return e, e.make(ctx, root, engine, requirements)
}

func (e Environment) make(ctx context.Context, root, engine, requirements string) (err error) {
	work, err := os.MkdirTemp(root, ".make-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	text, err := base.ReadFile("base/" + engine + ".txt")
	if err != nil {
		return fmt.Errorf("engine %q: %w", engine, err)
	}
	own := filepath.Join(work, "base.txt")
	if err := os.WriteFile(own, text, 0o644); err != nil {
		return err
	}
	made := filepath.Join(work, "venv")
	if text, err := exec.CommandContext(ctx, Program(), "-m", "venv", made).CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("make a virtual environment with %s (is python3-venv installed?): %w: %s", Program(), err, lastLines(text)), ctx.Err())
	}
	arguments := []string{"-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--requirement", own}
	if requirements != "" {
		arguments = append(arguments, "--requirement", requirements)
	}
	log, err := exec.CommandContext(ctx, filepath.Join(made, "bin", "python"), arguments...).CombinedOutput()
	if err != nil {
		kept := filepath.Join(root, e.Hash+".log")
		return errors.Join(fmt.Errorf("%w: %s (all of it is in %s)", ErrRequirements, lastLines(log), kept), ctx.Err(), os.WriteFile(kept, log, 0o644))
	}
	return os.Rename(made, filepath.Dir(filepath.Dir(e.Python)))
}

// lastLines are the last few lines of a log in one: of pip's, those that are errors,
// if there are any, but for long lists of what does not count.
func lastLines(log []byte) string {
	const few = 4
	var lines, wrong []string
	for line := range strings.Lines(string(log)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "[notice]") || strings.HasPrefix(line, "ERROR: Ignored the following") {
			continue
		}
		lines = append(lines, line)
		if strings.HasPrefix(line, "ERROR: ") {
			wrong = append(wrong, strings.TrimPrefix(line, "ERROR: "))
		}
	}
	if len(wrong) > 0 {
		lines = wrong
	}
	return strings.Join(lines[max(0, len(lines)-few):], "; ")
}

// content is what scripts/python.sh hashes, too.
func content(ctx context.Context, engine, requirements string) ([]byte, error) {
	own, err := base.ReadFile("base/" + engine + ".txt")
	if err != nil {
		return nil, fmt.Errorf("engine %q: %w", engine, err)
	}
	const ask = `import sys; print(f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}")`
	version, err := exec.CommandContext(ctx, Program(), "-c", ask).Output()
	if err != nil {
		return nil, fmt.Errorf("a Python is needed for the engine %s, and %s does not run (set %s to another): %w", engine, Program(), ProgramEnv, err)
	}
	text := append(bytes.Clone(version), own...)
	if requirements == "" {
		return text, nil
	}
	more, err := os.ReadFile(requirements)
	if err != nil {
		return nil, fmt.Errorf("requirements: %w", err)
	}
	return append(append(text, '\n'), more...), nil
}

// Program is the Python that environments are made with.
func Program() string {
	if p := os.Getenv(ProgramEnv); p != "" {
		return p
	}
	return "python3"
}

// directory is where environments are kept.
func directory() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where to keep Python's environments: %w", err)
	}
	return filepath.Join(cache, "faas-infer", "python"), nil
}
