package kubernetes_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/testcluster/node"
)

// preparedVariable has the directory of what was built before the process left the network.
const preparedVariable = "FAAS_INFER_KUBERNETES_PREPARED"

// faasCLIVariable has the path of the stock faas-cli.
const faasCLIVariable = "FAAS_INFER_KUBERNETES_FAAS_CLI"

// earlier are the linker's flags for a provider that names another commit.
const earlier = "-X github.com/faas-infer/faas-infer/command/report.Commit=earlier"

// gatewayVariable has the path of the stock gateway.
const gatewayVariable = "FAAS_INFER_KUBERNETES_GATEWAY"

// TestMain builds everything that needs a network, and then runs the tests in namespaces
// without one.
func TestMain(m *testing.M) {
	dir := os.Getenv(preparedVariable)
	if dir == "" {
		var err error
		if dir, err = prepare(); err != nil {
			fmt.Fprintln(os.Stderr, "end-to-end tests on Kubernetes:", err)
			os.Exit(1)
		}
		if err := os.Setenv(preparedVariable, dir); err != nil {
			fmt.Fprintln(os.Stderr, "end-to-end tests on Kubernetes:", err)
			os.Exit(1)
		}
		code := node.Run(m.Run)
		os.RemoveAll(dir)
		os.Exit(code)
	}
	os.Exit(node.Run(func() int {
		code := m.Run()
		if err := stopCommon(); err != nil {
			fmt.Fprintln(os.Stderr, "end-to-end tests on Kubernetes:", err)
			code = max(code, 1)
		}
		return code
	}))
}

// prepare builds both programs, the end-to-end tests and the base image of functions. It
// also lets the scripts fetch what the tests need.
func prepare() (string, error) {
	dir, err := os.MkdirTemp("", "faas-infer-suite-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	library, err := run("../../scripts/onnxruntime.sh")
	if err != nil {
		return "", err
	}
	if err := os.Setenv("FAAS_INFER_ONNXRUNTIME", strings.TrimSpace(library)); err != nil {
		return "", err
	}
	for variable, script := range map[string]string{faasCLIVariable: "faas-cli.sh", gatewayVariable: "gateway.sh"} {
		program, err := run("../../scripts/" + script)
		if err != nil {
			return "", err
		}
		if err := os.Setenv(variable, strings.TrimSpace(program)); err != nil {
			return "", err
		}
	}
	for _, command := range [][]string{
		{"../../scripts/chromium.sh"},
		{"../../scripts/kubernetes.sh"},
		{"../../scripts/metrics-server.sh"},
		{"../../scripts/services.sh"},
		{"../../scripts/helm.sh"},
		{"../../scripts/python.sh", "python"},
		{"go", "build", "-trimpath", "-o", filepath.Join(dir, "faas-infer"), "../.."},
		{"go", "build", "-trimpath", "-o", filepath.Join(dir, "faas-infer-kubernetes"), "../../command/kubernetes/program"},
		{"go", "build", "-trimpath", "-ldflags", earlier, "-o", filepath.Join(dir, "faas-infer-kubernetes-earlier"), "../../command/kubernetes/program"},
		{"env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", filepath.Join(dir, "nats-server"), "github.com/nats-io/nats-server/v2"},
		{"go", "test", "-c", "-o", filepath.Join(dir, "e2e.test"), ".."},
		{filepath.Join(dir, "faas-infer-kubernetes"), "image", "base", "--shell", "--python", "--tar", filepath.Join(dir, "base.tar")},
	} {
		if _, err := run(command...); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func run(command ...string) (string, error) {
	c := exec.Command(command[0], command[1:]...)
	var complaint strings.Builder
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, complaint.String())
	}
	return string(out), nil
}
