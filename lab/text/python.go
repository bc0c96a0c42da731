package text

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// services are the peers' services, what makes the models and the right answers, and their
// requirements.
//
//go:embed services
var services embed.FS

// engines is the environment with PyTorch, Infinity and sentence-transformers.
const engines = "text"

// enginesPython makes the environment of [engines] if it is missing, and returns its interpreter. It
// takes PyTorch, which has some GB, from the environment of the converters.
func (u *run) enginesPython(ctx context.Context) (string, error) {
	torch, err := environment.Find(ctx, "convert-torch", "")
	if err == nil && !torch.Made() {
		fmt.Fprintln(u.o.Log, "making the Python environment of PyTorch: 3 GB to fetch the first time")
		torch, err = environment.Ensure(ctx, "convert-torch", "")
	}
	if err != nil {
		return "", err
	}
	packages, _, err := torch.Packages()
	if err != nil {
		return "", err
	}
	requirements, err := services.ReadFile("services/" + engines + ".txt")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(torch.Hash+"\n"), requirements...))
	name := engines + "-" + hex.EncodeToString(sum[:8])
	root := filepath.Dir(filepath.Dir(filepath.Dir(torch.Python)))
	python := filepath.Join(root, name, "bin", "python")
	err = workdir.Store{Dir: root}.Make(ctx, name, func(string) bool { return exists(python) }, func(made string) error {
		began := time.Now()
		fmt.Fprintln(u.o.Log, "making the Python environment of the peers, which takes some minutes the first time")
		err := install(ctx, made, packages, requirements)
		fmt.Fprintf(u.o.Log, "it took %v\n", time.Since(began).Round(time.Second))
		return err
	})
	return python, err
}

// install makes a virtual environment that also has the packages of a directory.
func install(ctx context.Context, made, packages string, requirements []byte) error {
	if _, err := say(exec.CommandContext(ctx, environment.Program(), "-m", "venv", made)); err != nil {
		return err
	}
	own, _, err := environment.Environment{Python: filepath.Join(made, "bin", "python")}.Packages()
	if err != nil {
		return err
	}
	file := filepath.Join(made, "requirements.txt")
	err = errors.Join(os.WriteFile(filepath.Join(own, "torch.pth"), []byte(packages+"\n"), 0o644), os.WriteFile(file, requirements, 0o644))
	if err != nil {
		return err
	}
	_, err = say(exec.CommandContext(ctx, filepath.Join(made, "bin", "python"), "-m", "pip", "install", "--quiet",
		"--disable-pip-version-check", "--no-input", "--requirement", file))
	return err
}

// ownPython makes the environment of one peer if it is missing, and returns its interpreter.
func (u *run) ownPython(ctx context.Context, name string) (string, error) {
	file := filepath.Join(u.dir, name+".txt")
	if err := copyService(name+".txt", u.dir); err != nil {
		return "", err
	}
	e, err := environment.Find(ctx, "python", file)
	if err == nil && !e.Made() {
		fmt.Fprintf(u.o.Log, "making the Python environment of %s, which takes some minutes the first time\n", name)
		e, err = environment.Ensure(ctx, "python", file)
	}
	return e.Python, err
}

// copyService writes one of the embedded files into a directory.
func copyService(name, dir string) error {
	text, err := services.ReadFile("services/" + name)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), text, 0o644)
}

// python runs one of the embedded files and returns what it prints.
func python(ctx context.Context, program, service string, env []string, arguments ...string) (string, error) {
	dir, err := os.MkdirTemp("", "faas-infer-text-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := copyService(service, dir); err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, program, append([]string{filepath.Join(dir, service)}, arguments...)...)
	c.Env = append(os.Environ(), append(offline, env...)...)
	return say(c)
}

// offline keeps the libraries from asking Hugging Face's hub.
var offline = []string{"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "PYTHONNOUSERSITE=1", "PYTHONWARNINGS=ignore", "TOKENIZERS_PARALLELISM=true"}

// say runs a command, which ends with this process, and returns its standard output. Its error has
// the last line of what it wrote to standard error.
func say(c *exec.Cmd) (string, error) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var wrong strings.Builder
	c.Stderr = &wrong
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, rig.LastLine(wrong.String()))
	}
	return string(out), nil
}

// reference returns sentence-transformers' vectors of texts.
func (u *run) reference(ctx context.Context, folder string, texts []string) ([][]float32, error) {
	in, out := filepath.Join(u.dir, "texts.json"), filepath.Join(u.dir, "vectors")
	if err := writeJSON(in, texts); err != nil {
		return nil, err
	}
	fmt.Fprintln(u.o.Log, "asking sentence-transformers for the right answers")
	if _, err := python(ctx, u.python[engines], "reference.py", nil, folder, in, out); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	width := len(data) / 4 / len(texts)
	vectors := make([][]float32, len(texts))
	for i := range data[:4*width*len(texts)] {
		if i%4 == 0 {
			vectors[i/4/width] = append(vectors[i/4/width], math.Float32frombits(binary.LittleEndian.Uint32(data[i:])))
		}
	}
	return vectors, nil
}

func writeJSON(file string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
