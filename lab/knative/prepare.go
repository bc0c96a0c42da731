package knative

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
const builtVariable = "FAAS_INFER_KNATIVE_BUILT"

// built is what a measurement needs and cannot build without a network.
type built struct {
	// Program is faas-infer, and Kubernetes is faas-infer-kubernetes.
	Program, Kubernetes string
	// Dir is a directory with the base image of functions, base.tar.
	Dir string
	// Knative is the directory that scripts/knative.sh made.
	Knative string
	// Checkout is the directory of the project's files.
	Checkout string
}

// Inside reports whether an earlier process has called [Prepare] for this one.
func Inside() bool { return os.Getenv(builtVariable) != "" }

// Prepare builds what [Run] needs and cannot build in its namespaces, and tells the processes of
// the namespaces. done removes it. In these processes it does nothing. program is faas-infer.
func Prepare(ctx context.Context, program string) (done func() error, err error) {
	if Inside() {
		return func() error { return nil }, nil
	}
	b := built{Program: program, Kubernetes: filepath.Join(filepath.Dir(program), "faas-infer-kubernetes")}
	if _, err := os.Stat(b.Kubernetes); err != nil {
		return nil, fmt.Errorf("faas-infer-kubernetes must be beside %s: run `make build-kubernetes`: %w", program, err)
	}
	if b.Checkout, err = checkout(); err != nil {
		return nil, err
	}
	if b.Dir, err = os.MkdirTemp("", "faas-infer-knative-"); err != nil {
		return nil, err
	}
	done = func() error { return os.RemoveAll(b.Dir) }
	// The containers of the node run as other users and read files of the cluster, which is below.
	if err := errors.Join(os.Chmod(b.Dir, 0o755), os.Setenv("TMPDIR", b.Dir)); err != nil {
		return nil, errors.Join(err, done())
	}
	for _, script := range []string{"kubernetes.sh", "services.sh", "knative.sh", "onnxruntime.sh"} {
		printed, err := run(ctx, filepath.Join(b.Checkout, "scripts", script))
		if err != nil {
			return nil, errors.Join(err, done())
		}
		switch script {
		case "knative.sh":
			b.Knative = printed
		case "onnxruntime.sh":
			err = os.Setenv("FAAS_INFER_ONNXRUNTIME", printed)
		}
		if err != nil {
			return nil, errors.Join(err, done())
		}
	}
	if _, err := run(ctx, b.Kubernetes, "image", "base", "--tar", b.file("base.tar")); err != nil {
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

// prepared returns what [Prepare] has built.
func prepared() (b built, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(builtVariable)), &b); err != nil {
		return b, fmt.Errorf("read what was built from $%s: %w", builtVariable, err)
	}
	return b, nil
}

func (b built) file(name string) string { return filepath.Join(b.Dir, name) }

// checkout returns the checkout of the project that the working directory is in.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "scripts", "knative.sh")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not in a checkout of faas-infer, whose scripts this needs: change to one", dir)
		}
	}
}

// run runs a command and returns what it prints.
func run(ctx context.Context, command ...string) (string, error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, bytes.TrimSpace(complaint.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
