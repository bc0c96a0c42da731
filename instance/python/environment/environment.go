// Package environment installs the virtual environments for Python engines, once for each
// set of requirements, in the user's cache. It does not run functions in them: package
// python does. Begin with [Ensure].
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
	"syscall"

	"github.com/faas-infer/faas-infer/filelock/workdir"
)

// base holds the requirements of the engines themselves.
//
//go:embed base
var base embed.FS

// ProgramEnv is the environment variable that names the Python interpreter for new
// environments. The default is python3.
const ProgramEnv = "FAAS_INFER_PYTHON"

// ReadyEnv is the environment variable that names a Python interpreter with all packages
// already installed, as an image has it. Nothing is installed then.
const ReadyEnv = "FAAS_INFER_PYTHON_READY"

// ReadyName is the name of the environment that ReadyEnv gives.
const ReadyName = "ready"

// ErrRequirements is wrapped by Ensure's error if pip cannot install the requirements.
var ErrRequirements = errors.New("the requirements cannot be installed")

// Environment is a virtual environment.
type Environment struct {
	// Hash is a hash of Python's version and the requirements.
	Hash string
	// Python is the path of its interpreter.
	Python string
}

// Find returns an engine's environment, whether it is installed or not. requirements is
// the path of a requirements file, "" for none.
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

// Made reports whether the environment is installed.
func (e Environment) Made() bool {
	_, err := os.Stat(e.Python)
	return err == nil
}

// Packages returns the directory of an installed environment's packages, and the version
// of its Python, such as 3.11.
func (e Environment) Packages() (dir, version string, err error) {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(e.Python)), "lib", "python*", "site-packages"))
	if err != nil {
		return "", "", err
	}
	if len(found) != 1 {
		return "", "", fmt.Errorf("the environment of %s has %d directories of packages; it must have one", e.Python, len(found))
	}
	return found[0], strings.TrimPrefix(filepath.Base(filepath.Dir(found[0])), "python"), nil
}

// Ensure installs an engine's environment if it is missing. If pip fails, the error wraps
// [ErrRequirements] and contains the last lines of pip's log. If several processes call
// Ensure at once, one installs and the others wait.
func Ensure(ctx context.Context, engine, requirements string) (Environment, error) {
	e, err := Find(ctx, engine, requirements)
	if err != nil || e.Made() {
		return e, err
	}
	root, err := directory()
	if err != nil {
		return e, err
	}
	err = workdir.Store{Dir: root}.Make(ctx, e.Hash, func(string) bool { return e.Made() }, func(made string) error {
		return e.make(ctx, made, filepath.Join(root, e.Hash+".log"), engine, requirements)
	})
	return e, err
}

// make installs the environment into a directory, and keeps pip's log if that fails.
func (e Environment) make(ctx context.Context, made, logFile, engine, requirements string) error {
	text, err := base.ReadFile("base/" + engine + ".txt")
	if err != nil {
		return fmt.Errorf("engine %q: %w", engine, err)
	}
	if text, err := dependent(exec.CommandContext(ctx, Program(), "-m", "venv", made)).CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("make a virtual environment with %s (is python3-venv installed?): %w: %s", Program(), err, lastLines(text)), ctx.Err())
	}
	own := filepath.Join(made, "base.txt")
	if err := os.WriteFile(own, text, 0o644); err != nil {
		return err
	}
	arguments := []string{"-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--requirement", own}
	if requirements != "" {
		arguments = append(arguments, "--requirement", requirements)
	}
	log, err := dependent(exec.CommandContext(ctx, filepath.Join(made, "bin", "python"), arguments...)).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %s (full log: %s)", ErrRequirements, lastLines(log), logFile), ctx.Err(), os.WriteFile(logFile, log, 0o644))
	}
	return nil
}

// dependent lets a command end with this process. One that went on would write into the directory that the next
// process has taken over.
func dependent(c *exec.Cmd) *exec.Cmd {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// lastLines joins the last four lines of a log. If pip's log has lines with errors, it
// takes only those. It leaves out notices and pip's long lists of ignored versions.
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

// content returns the text whose hash names an environment. scripts/python.sh hashes the
// same.
func content(ctx context.Context, engine, requirements string) ([]byte, error) {
	own, err := base.ReadFile("base/" + engine + ".txt")
	if err != nil {
		return nil, fmt.Errorf("engine %q: %w", engine, err)
	}
	const ask = `import sys; print(f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}")`
	version, err := exec.CommandContext(ctx, Program(), "-c", ask).Output()
	if err != nil {
		return nil, fmt.Errorf("the engine %s needs Python, but %s does not run (set %s to another interpreter): %w", engine, Program(), ProgramEnv, err)
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

// Program returns the Python interpreter for new environments.
func Program() string {
	if p := os.Getenv(ProgramEnv); p != "" {
		return p
	}
	return "python3"
}

// directory returns the directory of all environments.
func directory() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a directory for Python's environments: %w", err)
	}
	return filepath.Join(cache, "faas-infer", "python"), nil
}
