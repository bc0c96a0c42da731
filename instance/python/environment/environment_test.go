package environment

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func requirements(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "requirements.txt")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// An environment's name depends on the engine's and the function's requirements, not on the
// file's path.
func TestNames(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv(ReadyEnv, "")
	seen := map[string]string{}
	for name, c := range map[string]struct{ engine, requirements string }{
		"python": {"python", ""}, "TensorFlow": {"tensorflow", ""}, "python with something": {"python", requirements(t, "six==1.16\n")}, "another version": {"python", requirements(t, "six==1.17\n")},
	} {
		e, err := Find(t.Context(), c.engine, c.requirements)
		if err != nil {
			t.Fatal(err)
		}
		if other, known := seen[e.Hash]; known || len(e.Hash) != 16 {
			t.Errorf("%s is %q, as is %s", name, e.Hash, other)
		}
		if seen[e.Hash] = name; e.Python != filepath.Join(cache, "faas-infer", "python", e.Hash, "bin", "python") || e.Made() {
			t.Errorf("%s is at %s, made: %v", name, e.Python, e.Made())
		}
		if c.requirements == "" {
			continue
		}
		text, err := os.ReadFile(c.requirements)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Find(t.Context(), c.engine, requirements(t, string(text))); err != nil || again != e {
			t.Errorf("%s is %+v and, written elsewhere, %+v, %v", name, e, again, err)
		}
	}
}

// With ReadyEnv, Find returns that interpreter under the same hash.
func TestReady(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv(ReadyEnv, "")
	made, err := Find(t.Context(), "python", "")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(ReadyEnv, program)
	ready, err := Ensure(t.Context(), "python", "")
	if err != nil || ready.Python != program || ready.Hash != made.Hash || !ready.Made() {
		t.Errorf("%+v, %v", ready, err)
	}
}

func TestFindRefuses(t *testing.T) {
	for _, c := range []struct{ name, program, engine, requirements, says string }{
		{"an engine that there is not", "", "cobol", "", `engine "cobol"`},
		{"no Python", "/no/such/python", "python", "", "set " + ProgramEnv + " to another"},
		{"no file", "", "python", "/no/such/requirements.txt", "requirements: open /no/such/requirements.txt"},
	} {
		t.Setenv(ProgramEnv, c.program)
		if _, err := Ensure(t.Context(), c.engine, c.requirements); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestPackages(t *testing.T) {
	root := t.TempDir()
	e := Environment{Python: filepath.Join(root, "bin", "python")}
	if _, _, err := e.Packages(); err == nil {
		t.Error("an environment that is not made has packages")
	}
	dir := filepath.Join(root, "lib", "python3.11", "site-packages")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, version, err := e.Packages(); got != dir || version != "3.11" || err != nil {
		t.Errorf("%s of %s, %v", got, version, err)
	}
}

func TestLastLines(t *testing.T) {
	for log, want := range map[string]string{
		"":                  "",
		"a\nb\n\nc\nd\ne\n": "b; c; d; e",
		"Collecting x\nERROR: No matching distribution found for x\n[notice] A new release of pip\n":         "No matching distribution found for x",
		"ERROR: Ignored the following versions that require another Python: 1, 2\nERROR: Could not find x\n": "Could not find x",
	} {
		if got := lastLines([]byte(log)); got != want {
			t.Errorf("%q: %q, want %q", log, got, want)
		}
	}
}

// pip ends with the process that runs it, also if that is killed.
func TestDependentEnds(t *testing.T) {
	const inside = "FAAS_INFER_TEST_DEPENDENT"
	if os.Getenv(inside) != "" {
		c := dependent(exec.Command("sleep", "600"))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("pid", c.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin) // Until it is killed.
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^TestDependentEnds$")
	c.Env = append(os.Environ(), inside+"=1")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var pid string
	for lines := bufio.NewScanner(out); pid == "" && lines.Scan(); {
		pid, _ = strings.CutPrefix(lines.Text(), "pid ")
		if pid == lines.Text() {
			pid = ""
		}
	}
	_ = c.Process.Kill()
	_ = c.Wait() // It was killed.
	if pid == "" {
		t.Fatal("no child was started")
	}
	for { // Until the test's own time is over.
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
