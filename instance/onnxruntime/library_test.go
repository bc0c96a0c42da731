package onnxruntime

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/faas-infer/faas-infer/instance/engine"
)

// The library reports nothing to its maker. Where it does, it first makes a directory for its
// queue of events in the user's cache.
func TestNoTelemetry(t *testing.T) {
	if argument := os.Getenv(helperEnv); argument != "" {
		fmt.Println("helper:", mustOpen(t, Options{Model: argument}).Inputs()[0].Name)
		io.Copy(io.Discard, os.Stdin)
		return
	}
	if got := os.Getenv("ORT_DISABLE_TELEMETRY"); got != "1" || engine.NoTelemetry != "ORT_DISABLE_TELEMETRY="+got {
		t.Errorf("after Load the variable is %q", got)
	}
	path, err := LibraryPath()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for name, value := range map[string]string{"HOME": home, "XDG_CACHE_HOME": filepath.Join(home, "cache"), LibraryEnv: path, "ORT_DISABLE_TELEMETRY": ""} {
		t.Setenv(name, value)
	}
	helper(t, "TestNoTelemetry", zooFile(t, "identity"))
	if left, err := filepath.Glob(filepath.Join(home, "*")); err != nil || len(left) > 0 {
		t.Errorf("the library has written %v, %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(home, ".*")); err != nil || len(left) > 0 {
		t.Errorf("the library has written %v, %v", left, err)
	}
}

// The script fetches the versions that the program expects.
func TestVersionsOfTheScript(t *testing.T) {
	script, err := os.ReadFile("../../scripts/onnxruntime.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"version": LibraryVersion, "cuda_version": CUDAVersion} {
		m := regexp.MustCompile(`(?m)^` + name + `=(\S+)$`).FindSubmatch(script)
		if m == nil || string(m[1]) != want {
			t.Errorf("%s is %s, not %s", name, m, want)
		}
	}
}
