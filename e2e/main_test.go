package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// suite is shared by all tests. It has the paths of the binary, the gateway, ONNX Runtime
// and a browser, and the directory of prepared models.
var suite struct {
	dir, binary, prepared string
	// lab is faas-infer-lab, beside the binary.
	lab string
	// operators are the profiles that each place begins with.
	operators string
	// library is libonnxruntime.so, gateway and chromium are executables.
	library, gateway, chromium string
}

func TestMain(m *testing.M) {
	flag.Parse()
	err := boundedByTurns()
	if err == nil {
		err = prepare()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "end-to-end tests:", err)
		os.RemoveAll(suite.dir)
		os.Exit(1)
	}
	home := goleak.IgnoreAnyFunction("github.com/faas-infer/faas-infer/e2e.(*network).stay")
	goleak.VerifyTestMain(m, home, goleak.Cleanup(func(code int) {
		os.RemoveAll(suite.dir)
		os.Exit(code)
	}))
}

// prepare builds the binary and lets the scripts fetch what is missing.
func prepare() (err error) {
	if suite.dir, err = os.MkdirTemp("", "faas-infer-e2e-"); err != nil {
		return err
	}
	// Another user runs the binary as well.
	if err := os.Chmod(suite.dir, 0o755); err != nil {
		return err
	}
	suite.prepared = filepath.Join(suite.dir, "prepared")
	if err := findCluster(); err != nil {
		return err
	}
	if onCluster != nil {
		suite.binary = onCluster.Program
		if err := onCluster.pushBuiltin(); err != nil {
			return err
		}
	} else if err := buildBoth(); err != nil {
		return err
	}
	if suite.library, err = script("onnxruntime.sh"); err != nil {
		return fmt.Errorf("%w; run `make onnxruntime`", err)
	}
	if suite.gateway, err = script("gateway.sh"); err != nil {
		return fmt.Errorf("%w; run `make gateway`", err)
	}
	if suite.chromium, err = script("chromium.sh"); err != nil {
		return fmt.Errorf("%w; run `make chromium`", err)
	}
	return profile("identity", "mnist")
}

// profile measures the operators of the models that tests deploy often, once for all
// places.
func profile(models ...string) error {
	suite.operators = filepath.Join(suite.dir, "operators.jsonl")
	for _, m := range models {
		c := exec.Command(suite.binary, "profile", "predict", m, "--database", suite.operators, "--prepared", suite.prepared)
		c.Env = append(os.Environ(), "FAAS_INFER_ONNXRUNTIME="+suite.library)
		if text, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("profile predict %s: %w: %s", m, err, text)
		}
	}
	return nil
}

// buildBoth builds faas-infer and faas-infer-lab side by side. The lab is a module of its own.
func buildBoth() (err error) {
	if suite.binary, err = build("faas-infer", "..", "-tags", os.Getenv(tagsVar)); err != nil {
		return err
	}
	suite.lab, err = build("faas-infer-lab", "../lab")
	return err
}

// tagsVar is the environment variable with the build tags of faas-infer; nopapers leaves the papers out.
const tagsVar = "FAAS_INFER_E2E_TAGS"

// build builds the program in a module's directory.
func build(name, module string, flags ...string) (string, error) {
	out := filepath.Join(suite.dir, name)
	c := exec.Command("go", append([]string{"build", "-buildvcs=false", "-trimpath", "-o", out}, flags...)...)
	c.Dir = module
	if text, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, text)
	}
	return out, nil
}

// raceBinary builds the program with the race detector.
var raceBinary = sync.OnceValues(func() (string, error) { return build("faas-infer-race", "..", "-race") })

// script runs one of scripts/, which prints a path.
func script(name string) (string, error) {
	c := exec.Command(filepath.Join("..", "scripts", name))
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("scripts/%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
