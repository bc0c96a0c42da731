package command

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
)

func TestVersionOfARelease(t *testing.T) {
	release, commit := report.Release, report.Commit
	t.Cleanup(func() { report.Release, report.Commit = release, commit })
	report.Release, report.Commit = "", "abc123"
	out, err := execute(t, "version", "-o", "json")
	if err != nil || strings.Contains(out, `"release"`) || !strings.Contains(out, `"commit": "abc123"`) {
		t.Errorf("no release: %v: %s", err, out)
	}
	report.Release = "v1.2.3"
	out, err = execute(t, "version")
	if err != nil || !strings.Contains(out, "v1.2.3") || !strings.Contains(out, "abc123") {
		t.Errorf("a release: %v: %s", err, out)
	}
	if out, err = execute(t, "--version"); err != nil || !strings.Contains(out, "v1.2.3") {
		t.Errorf("--version: %v: %s", err, out)
	}
}

// A library for an architecture that is not known is refused before the network is asked.
func TestSetupForAnotherArchitecture(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("FAAS_INFER_ONNXRUNTIME", "")
	t.Setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
	for architecture, want := range map[string]string{
		"riscv64": "amd64 and arm64 only",
		"arm64":   "--platform manylinux_2_28_aarch64",
		"amd64":   "--platform manylinux_2_28_x86_64",
	} {
		if _, err := execute(t, "setup", "--architecture", architecture); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", architecture, err)
		}
	}
}
