// These tests run the scripts that run tests.
package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// failing holds the tests of a module's packages, by the package's name. In each, first reports true
// the first time that it is called.
var failing = map[string]string{
	"passes": `func Test(t *testing.T) { t.Log("noise") }`,
	"flaky": `func TestA(t *testing.T) {
		t.Run("sub 1", func(t *testing.T) { if first("a") { t.Error("too slow") } })
		t.Run("sub 2", func(t *testing.T) { t.Log("noise") })
	}
	func TestB(t *testing.T) { t.Log("noise"); if !first("b") { t.Error("it ran again after it passed") } }`,
	"wrong":  `func Test(t *testing.T) { t.Error("always so") }`,
	"leaks":  `func Test(t *testing.T) {}; func TestMain(m *testing.M) { m.Run(); if first("a") { os.Exit(1) } }`,
	"panics": `func Test(t *testing.T) { if first("a") { panic("once") } }`,
	"exits":  `func Test(t *testing.T) { if first("a") { os.Exit(1) } }`,
	"hangs":  `func Test(t *testing.T) { if first("a") { select {} } }`,
	"races":  `func Test(t *testing.T) { if first("a") { println("WARNING: DATA RACE"); t.Error("once") } }`,
	"starts": `func Test(t *testing.T) { if first("a") { t.Error("the log says panic:") } }`,
	"broken": `func Test(`,
	"many": strings.Repeat(`func TestNUMBER(t *testing.T) { if first(t.Name()) { t.Error("the machine is slow") } }
	`, 11),
}

// withFailures writes the module and links to the scripts there, and returns its directory.
func withFailures(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"go.mod": "module m\n\ngo 1.26.0\n"}
	for name, tests := range failing {
		for number := 'A'; strings.Contains(tests, "NUMBER"); number++ {
			tests = strings.Replace(tests, "NUMBER", string(number), 1)
		}
		files[name+"/all_test.go"] = "package " + name + `
		import ("os"; "testing")
		func first(name string) bool {
			f, err := os.OpenFile("ran-" + name, os.O_CREATE|os.O_EXCL, 0o600)
			_ = f.Close()
			return err == nil
		}
		` + tests
	}
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	scripts, err := filepath.Abs("scripts")
	if err := errors.Join(err, os.Symlink(scripts, filepath.Join(dir, "scripts"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// script runs one of the scripts in a module of withFailures. It returns what the script wrote, and its
// exit status.
func script(t *testing.T, dir, name string, arguments ...string) (stdout, stderr string, status int) {
	t.Helper()
	// Go's test cache knows by this that the results depend on the script.
	if _, err := os.Stat(filepath.Join("scripts", name)); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	c := exec.CommandContext(t.Context(), filepath.Join(dir, "scripts", name), arguments...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &errs
	// Whoever runs this test may have set the variables of the scripts.
	c.Env = append(os.Environ(), "GOFLAGS=-vet=off",
		"FAAS_INFER_RERUNS=", "FAAS_INFER_FAILED=", "FAAS_INFER_FLAKY="+filepath.Join(dir, "bin/flaky"))
	if err := c.Run(); err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

func TestFailedTestsRunAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		packages string
		status   int
		// runs is how often the tests run, and lists what the output ends with.
		runs  int
		lists string
	}{
		"all pass":                {"passes", 0, 1, "ok"},
		"flaky":                   {"passes flaky", 0, 2, "flaky: m/flaky TestA/sub_1\n"},
		"wrong":                   {"wrong", 1, 3, "failed: m/wrong Test\n"},
		"flaky and wrong":         {"flaky wrong", 1, 4, "flaky: m/flaky TestA/sub_1\nfailed: m/wrong Test\n"},
		"after the tests":         {"leaks", 0, 2, "flaky: m/leaks (the package)\n"},
		"a panic is final":        {"panics", 1, 1, "failed: m/panics Test\n"},
		"an exit is final":        {"exits", 1, 1, "failed: m/exits Test\n"},
		"a timeout is final":      {"hangs", 1, 1, "failed: m/hangs Test\n"},
		"a data race is final":    {"races", 1, 1, "failed: m/races Test\n"},
		"a program's panic":       {"starts", 1, 1, "failed: m/starts Test\n"},
		"no build is final":       {"broken", 1, 1, "failed: m/broken (the package)\n"},
		"no rerun beside a final": {"flaky broken", 1, 1, "failed: m/broken (the package)\nfailed: m/flaky TestA/sub_1\n"},
		"too many to be chance":   {"many", 1, 1, "failed: m/many TestK\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := withFailures(t)
			timeout := "10m"
			if c.packages == "hangs" {
				timeout = "1s"
			}
			arguments := []string{"-timeout", timeout, "--"}
			for p := range strings.FieldsSeq(c.packages) {
				arguments = append(arguments, "./"+p)
			}
			out, errs, status := script(t, dir, "gotest.py", arguments...)
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			if runs := 1 + strings.Count(out, "--- again"); runs != c.runs {
				t.Errorf("%d runs, want %d", runs, c.runs)
			}
			if !strings.HasSuffix(out, c.lists) && c.lists != "ok" || strings.Contains(out, "noise") {
				t.Errorf("want %q at the end, and no output of tests that pass", c.lists)
			}
			if t.Failed() {
				t.Log(out, errs)
			}
		})
	}
}

// Each part of the suite prints its own flaky tests only. The file has those of all parts.
func TestFlakyTestsAreListedOnce(t *testing.T) {
	t.Parallel()
	dir := withFailures(t)
	all := ""
	for _, p := range []string{"flaky", "leaks", "passes"} {
		out, errs, status := script(t, dir, "gotest.py", "--", "./"+p)
		if status != 0 {
			t.Errorf("%s: status %d: %s%s", p, status, out, errs)
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, "flaky: ") {
				all += line
			}
		}
	}
	const want = "flaky: m/flaky TestA/sub_1\nflaky: m/leaks (the package)\n"
	listed, err := os.ReadFile(filepath.Join(dir, "bin/flaky"))
	if err != nil || all != want || string(listed) != want {
		t.Errorf("printed are\n%s, the file has\n%s, %v, want\n%s", all, listed, err, want)
	}
}

func TestFlakesAreCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ arguments, want string }{
		"packages": {"2 -timeout=10m ./passes ./flaky ./wrong", `failed in  test (2 rounds)
2          m/wrong Test
1          m/flaky TestA/sub_1
1          m/flaky TestB
`},
		// A part of the suite that fails does not end the others.
		"the suite": {"2", `failed in  test (2 rounds)
2          m/wrong Test
1          m/leaks (the package)
`},
		"no failure": {"1 ./passes", "No test failed. Rounds: 1\n"},
	} {
		t.Run(name, func(t *testing.T) { // One after another: each keeps the machine busy.
			dir := withFailures(t)
			makefile := "test-packages:\n\t@scripts/gotest.py -- ./wrong\ntest-end-to-end:\n\t@scripts/gotest.py -- ./leaks\n"
			if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o644); err != nil {
				t.Fatal(err)
			}
			out, errs, status := script(t, dir, "flakes.sh", strings.Fields(c.arguments)...)
			if out != c.want || (status == 0) != (name == "no failure") {
				t.Errorf("status %d, got\n%s, want\n%s%s", status, out, c.want, errs)
			}
		})
	}
}

func TestFlakesRefusesNonsense(t *testing.T) {
	t.Parallel()
	dir := withFailures(t)
	for _, arguments := range [][]string{nil, {"0"}, {"x"}, {"1", "-race"}} {
		if _, _, status := script(t, dir, "flakes.sh", arguments...); status != 2 {
			t.Errorf("%q: status %d, want 2", arguments, status)
		}
	}
}
