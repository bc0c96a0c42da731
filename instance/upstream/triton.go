package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// triton is NVIDIA's Triton Inference Server.
type triton struct{}

// tritonConfig is the file of a model's settings in Triton's model repository.
const tritonConfig = "config.pbtxt"

// The subdirectories that layOut makes: the model repository and a wheel's backends.
const (
	repositoryDir = "repository"
	backendsDir   = "backends"
	// stubFile is the program that runs a model of Triton's Python backend.
	stubFile = "triton_python_backend_stub"
)

// regionPrefix begins the names of the files in /dev/shm through which Triton's Python
// backend shares memory with its processes. This process's ID and a port follow it.
const regionPrefix = "faas-infer-triton-"

func (triton) name() string { return "tritonserver" }

func (triton) pip() bool { return true }

// find also looks into NVIDIA's PyTriton, a Python package that contains the server.
func (triton) find(path []string, packages string) (program, error) {
	if file, ok := lookUp("tritonserver", append(path, "/opt/tritonserver/bin")); ok {
		return program{argv: []string{file}}, nil
	}
	inside := filepath.Join(packages, "pytriton", "tritonserver")
	file, ok := lookUp("tritonserver", []string{filepath.Join(inside, "bin")})
	if packages == "" || !ok {
		return program{}, errors.New("tritonserver is neither on PATH nor in /opt/tritonserver/bin; build the image from nvcr.io/nvidia/tritonserver, or name the program in bundle.yaml as `server: /path/to/tritonserver`")
	}
	// The server takes libpython from the environment's own Python. The stub that runs
	// models must fit Python's version: the package has one for each.
	version := strings.TrimPrefix(filepath.Base(filepath.Dir(packages)), "python")
	environment := filepath.Dir(filepath.Dir(filepath.Dir(packages)))
	var libraries []string
	if own, err := filepath.EvalSymlinks(filepath.Join(environment, "bin", "python3")); err == nil {
		libraries = append(libraries, filepath.Join(filepath.Dir(filepath.Dir(own)), "lib"))
	}
	libraries = append(libraries, filepath.Join(packages, "nvidia_pytriton.libs"))
	if own := os.Getenv("LD_LIBRARY_PATH"); own != "" {
		libraries = append(libraries, own)
	}
	return program{
		argv: []string{file}, env: []string{"LD_LIBRARY_PATH=" + strings.Join(libraries, ":")},
		wheel: wheel{filepath.Join(inside, "backends"), filepath.Join(inside, "python_backend_stubs", version, stubFile)},
	}, nil
}

// layOut writes a repository with only this model, and the model's settings for the
// instance's batches.
func (triton) layOut(dir string, s serving) error {
	if err := s.Wheel.layOut(filepath.Join(dir, backendsDir, "python")); err != nil {
		return err
	}
	model := filepath.Join(dir, repositoryDir, s.Name)
	if err := os.MkdirAll(model, 0o755); err != nil {
		return err
	}
	if err := link(model, s.Model, tritonConfig); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(s.Model, tritonConfig))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	config, err := tritonSettings(string(text), s)
	if err != nil {
		return fmt.Errorf("%s: %w", tritonConfig, err)
	}
	return os.WriteFile(filepath.Join(model, tritonConfig), []byte(config), 0o644)
}

// layOut assembles the wheel's Python backend in dir.
func (w wheel) layOut(dir string) error {
	if w.stub == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := link(dir, filepath.Join(w.backends, "python")); err != nil {
		return err
	}
	return os.Symlink(w.stub, filepath.Join(dir, stubFile))
}

// tritonSettings returns a model's settings with the instance's batch size and without
// Triton's batching: each request is already a batch. A model with max_batch_size 0 keeps
// it: its shapes include the batch dimension.
func tritonSettings(text string, s serving) (string, error) {
	fields, err := PbtxtFields(text)
	if err != nil {
		return "", err
	}
	for _, f := range fields {
		if f.Name == "sequence_batching" || f.Name == "ensemble_scheduling" {
			return "", fmt.Errorf("%s is not supported; remove it: requests are independent, and a bundle has one model", f.Name)
		}
	}
	batch := s.Batch
	if PbtxtValue(fields, "max_batch_size") == "0" {
		batch = 0
	}
	var out strings.Builder
	fmt.Fprintf(&out, "name: %q\nmax_batch_size: %d\n", s.Name, batch)
	out.WriteString(PbtxtWithout(fields, "name", "max_batch_size", "dynamic_batching"))
	onnx := PbtxtValue(fields, "backend") == "onnxruntime" || PbtxtValue(fields, "platform") == "onnxruntime_onnx"
	if onnx && !strings.Contains(text, "intra_op_thread_count") {
		fmt.Fprintf(&out, "parameters { key: \"intra_op_thread_count\" value { string_value: \"%d\" } }\n", s.Threads)
	}
	return out.String(), nil
}

func (triton) flags(dir string, s serving, at ports) ([]flag, []string) {
	flags := []flag{
		{"--model-repository", filepath.Join(dir, repositoryDir)}, {"--http-address", "127.0.0.1"}, {"--http-port", strconv.Itoa(at.http)},
		{"--allow-grpc", "false"}, {"--allow-metrics", "false"}, {"--http-thread-count", "2"}, {"--log-info", "false"},
		{"--backend-config", "python,shm-region-prefix-name=" + region(os.Getpid(), at)},
	}
	if s.Wheel.backends != "" {
		flags = append(flags, flag{"--backend-directory", filepath.Join(dir, backendsDir)})
	}
	return flags, nil
}

func region(pid int, at ports) string {
	return fmt.Sprintf("%s%d-%d-", regionPrefix, pid, at.http)
}

// clear removes the Python backend's shared memory: that of this server, and that of
// instances that no longer run.
func (triton) clear(at ports) {
	files, err := filepath.Glob("/dev/shm/" + regionPrefix + "*")
	if err != nil {
		return
	}
	for _, file := range files {
		name := filepath.Base(file)
		number, _, _ := strings.Cut(strings.TrimPrefix(name, regionPrefix), "-")
		pid, err := strconv.Atoi(number)
		gone := err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
		if gone || strings.HasPrefix(name, region(os.Getpid(), at)) {
			_ = os.Remove(file) // Another instance may have removed it.
		}
	}
}

func (triton) connect(base, model string) Server { return NewOpenInference(base, model) }
