// Package kubelet installs faas-infer on a Kubernetes with one real kubelet, for benches that need pods. [Prepare] builds
// what cannot be built without a network, and [Start] starts the cluster in the namespaces of [node.Run]. It measures
// nothing. Begin with Prepare.
package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// builtVariable holds what was built before the process left the network, in JSON.
const builtVariable = "FAAS_INFER_KUBELET_BUILT"

// Built is what a measurement needs and cannot build without a network.
type Built struct {
	// Program is faas-infer, and Kubernetes is faas-infer-kubernetes.
	Program, Kubernetes string
	// Files is a directory with the base image of functions, base.tar.
	Files string
	// Printed is what each script has printed, by its name.
	Printed map[string]string
	// Checkout is the directory of the project's files.
	Checkout string
}

// Inside reports whether an earlier process has called [Prepare] for this one.
func Inside() bool { return os.Getenv(builtVariable) != "" }

// Prepare builds what [Start] needs and cannot build in its namespaces, runs more of the project's scripts, and tells
// the processes of the namespaces. done removes it. In these processes it does nothing. program is faas-infer.
func Prepare(ctx context.Context, program string, scripts ...string) (done func() error, err error) {
	if Inside() {
		return func() error { return nil }, nil
	}
	b := Built{
		Program:    program,
		Kubernetes: filepath.Join(filepath.Dir(program), "faas-infer-kubernetes"),
		Printed:    map[string]string{},
	}
	if _, err := os.Stat(b.Kubernetes); err != nil {
		return nil, fmt.Errorf("faas-infer-kubernetes must be beside %s: run `make build-kubernetes`: %w", program, err)
	}
	if b.Checkout, err = checkout(); err != nil {
		return nil, err
	}
	if b.Files, err = os.MkdirTemp("", "faas-infer-kubelet-"); err != nil {
		return nil, err
	}
	done = func() error { return os.RemoveAll(b.Files) }
	// The containers of the node run as other users and read files of the cluster, which is below.
	if err := errors.Join(os.Chmod(b.Files, 0o755), os.Setenv("TMPDIR", b.Files)); err != nil {
		return nil, errors.Join(err, done())
	}
	for _, script := range append([]string{"kubernetes.sh", "services.sh", onnxRuntime}, scripts...) {
		if b.Printed[script], err = Run(ctx, filepath.Join(b.Checkout, "scripts", script)); err != nil {
			return nil, errors.Join(err, done())
		}
	}
	if err := os.Setenv("FAAS_INFER_ONNXRUNTIME", b.Printed[onnxRuntime]); err != nil {
		return nil, errors.Join(err, done())
	}
	if _, err := Run(ctx, b.Kubernetes, "image", "base", "--tar", b.File("base.tar")); err != nil {
		return nil, errors.Join(err, done())
	}
	text, err := json.Marshal(b)
	if err == nil {
		err = os.Setenv(builtVariable, string(text))
	}
	if err != nil {
		return nil, errors.Join(err, done())
	}
	return done, nil
}

// onnxRuntime is the script that prints the path of the library.
const onnxRuntime = "onnxruntime.sh"

// prepared returns what [Prepare] has built.
func prepared() (b Built, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(builtVariable)), &b); err != nil {
		return b, fmt.Errorf("read what was built from $%s: %w", builtVariable, err)
	}
	return b, nil
}

// File returns the path of a file in Files.
func (b Built) File(name string) string { return filepath.Join(b.Files, name) }

// checkout returns the checkout of the project that the working directory is in.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "scripts", "kubernetes.sh")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not in a checkout of faas-infer, whose scripts this needs: change to one", dir)
		}
	}
}

// Run runs a command and returns what it prints.
func Run(ctx context.Context, command ...string) (string, error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
