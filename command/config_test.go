package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestConfigFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	file := filepath.Join(dir, "f.yaml")
	for _, c := range []struct{ text, arguments, want, wrong string }{
		{"# nothing\n", "", "FIELD", ""},
		{"listen: 127.0.0.1:9000\ndrain: 5s\ncores: [0]\nallow-host:\n- a\n- b\npark: no\n", "", "allow-host  a,b             line 4", ""},
		{"drain: 5s\nqueue-limit: 7\nrate: [1, 2.5]\n", "-o yaml", "drain: 5s\nqueue-limit: 7\nrate:\n- 1\n- 2.5\n", ""},
		{"drain: 5s\n", "--all", "policy", ""},
		{"tls: /x\n", "--for provider", "tls", ""},
		{"listen: x\nlistn: y\n", "", "", "f.yaml:2: listn: there is no such field; did you mean listen?"},
		{"listen: x\nconfig: y\n", "", "", "f.yaml:2: config: there is no such field"},
		{"tls: /x\n", "", "", "f.yaml:1: tls: there is no such field"},
		{"\ndrain: soon\n", "", "", "f.yaml:2: drain: invalid argument \"soon\""},
		{"listen: a\nlisten: b\n", "", "", "line 1 has the same field"},
		{"listen: [a, b]\n", "", "", "f.yaml:1: listen: it takes one value"},
		{"listen: {a: b}\n", "", "", "line 1 must be a value or a list"},
		{"drain: 5s\npolicy: fast\n", "", "", "f.yaml:2: "},
		{"max-body: 8\n\nmax-held: 4\n", "", "", "f.yaml:3: --max-held is 4"},
		{"- a\n", "", "", "f.yaml:1: it must have fields"},
		{"a: [\n", "", "", "f.yaml: yaml: line"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := execute(t, append([]string{"config", "show", "--config", file}, strings.Fields(c.arguments)...)...)
		if !strings.Contains(out, c.want) || (c.wrong == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.wrong) || exitCode(err) != usageExit) {
			t.Errorf("%q: %v\n%s", c.text, err, out)
		}
	}
	if _, err := execute(t, "config", "show", "--config", file+"x"); err == nil || exitCode(err) != 1 {
		t.Errorf("no file: %v", err)
	}
}

// What "config show" prints can be read back, and the command line comes first.
func TestConfigIsReadBack(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	file := filepath.Join(dir, "f.yaml")
	if err := os.WriteFile(file, []byte("gpus: [none]\nallow-host: [a, b]\nlisten: off\npark: off\ntrace-sample: 0.5\nmax-build: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := execute(t, "config", "show", "--config", file, "-o", "yaml")
	if err != nil || !strings.Contains(first, "park: false\n") || !strings.Contains(first, "- none\n") {
		t.Fatalf("%v\n%s", err, first)
	}
	if err := os.WriteFile(file, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if second, err := execute(t, "config", "show", "--config", file, "-o", "yaml"); err != nil || second != first {
		t.Errorf("%v\n%s\nthen\n%s", err, first, second)
	}
	if err := os.WriteFile(file, []byte("queue-limit: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"up", "provider"} {
		if _, err := execute(t, of, "--config", file, "--log-level", "error"); err == nil || !strings.Contains(err.Error(), "f.yaml:1: --queue-limit") {
			t.Errorf("%s: a wrong value: %v", of, err)
		}
		if _, err := execute(t, of, "--config", file, "--queue-limit", "5", "--alpha", "2"); err == nil || !strings.Contains(err.Error(), "--alpha") {
			t.Errorf("%s: a wrong flag: %v", of, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("checking changed the disk: %v, %v", left, err)
	}
}

func TestHelpShowsTheUsefulFlags(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^ +(?:-[a-z], )?--([a-z-]+)`)
	for _, of := range []string{"up", "provider"} {
		short, err := execute(t, of, "--help")
		if n := len(listed.FindAllString(short, -1)); err != nil || n != 13 || !strings.Contains(short, "--help-all") {
			t.Errorf("%s --help: %d flags, %v\n%s", of, n, err, short)
		}
		long, err := execute(t, of, "--help-all")
		if n := len(listed.FindAllString(long, -1)); err != nil || n < 50 || !strings.Contains(long, "--nats-listen") {
			t.Errorf("%s --help-all: %d flags, %v", of, n, err)
		}
	}
}

// The configuration of the Debian package is one that "up" reads.
func TestConfigOfTheRelease(t *testing.T) {
	out, err := execute(t, "config", "show", "--config", "../scripts/release/config.yaml", "-o", "json")
	if err != nil || !strings.Contains(out, `"listen": "127.0.0.1:8080"`) || !strings.Contains(out, `"stack": ""`) {
		t.Errorf("%v: %s", err, out)
	}
}
