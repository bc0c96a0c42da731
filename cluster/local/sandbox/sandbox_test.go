package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain lets the test binary be the process inside the sandbox.
func TestMain(m *testing.M) {
	if os.Getenv("SANDBOX_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	if os.Getenv("SANDBOX_TEST_CALLS") != "" {
		makeCalls()
		return
	}
	if script := os.Getenv("SANDBOX_TEST_SCRIPT"); script != "" {
		playFunction(script)
		return
	}
	if err := Enter(); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	if _, set := os.LookupEnv(EnvSandbox); set {
		fmt.Println("the environment still names the sandbox")
	}
	entries, _ := os.ReadDir(Dir())
	for _, entry := range entries {
		value, err := os.ReadFile(filepath.Join(Dir(), entry.Name()))
		info, _ := entry.Info()
		fmt.Printf("%s=%s %v %v\n", entry.Name(), value, info.Mode(), err)
	}
	fmt.Println("write:", os.WriteFile(filepath.Join(Dir(), "new"), nil, 0o600) != nil)
}

// child runs the test binary with the environment entry and attr.
func child(t *testing.T, attr *syscall.SysProcAttr, entry string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = []string{"SANDBOX_TEST_CHILD=1", "GORACE=atexit_sleep_ms=0", entry}
	command.SysProcAttr = attr
	printed, _ := command.CombinedOutput()
	return string(printed)
}

func secretFile(t *testing.T, value string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSecretsAreSeenOnlyInside(t *testing.T) {
	if err := Available(); err != nil {
		t.Logf("%v; nothing more to try", err)
		return
	}
	var attr syscall.SysProcAttr
	entry, err := Prepare(&attr, map[string]string{"api-key": secretFile(t, "s3cr3t")})
	if err != nil {
		t.Fatal(err)
	}
	const want = "api-key=s3cr3t -rw------- <nil>\nwrite: true\n"
	if got := child(t, &attr, entry); got != want {
		t.Errorf("inside: %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(SecretsDir, "api-key")); err == nil {
		t.Error("the secret is seen outside")
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(SecretsDir, &stat); err == nil && stat.Type == unix.TMPFS_MAGIC {
		t.Error("the mount is seen outside")
	}
}

func TestEnterRefusesTheMachinesOwnNamespace(t *testing.T) {
	var attr syscall.SysProcAttr
	entry, err := Prepare(&attr, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := child(t, nil, entry); !strings.Contains(got, "no mount namespace of its own") {
		t.Errorf("it said %q", got)
	}
	if got := child(t, nil, EnvSandbox+"={"); !strings.Contains(got, EnvSandbox) {
		t.Errorf("it said %q", got)
	}
}

func TestSecretsWithoutRights(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "secrets")
	if err := CopySecrets(dir, map[string]string{"one": secretFile(t, "1")}); err != nil {
		t.Fatal(err)
	}
	if got := child(t, nil, EnvSecretsDir+"="+dir); !strings.HasPrefix(got, "one=1 -rw------- <nil>\n") {
		t.Errorf("the process saw %q", got)
	}
}

func TestNamesThatLeaveTheDirectoryAreRefused(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../up", "a/b", "/abs"} {
		if _, err := Prepare(&syscall.SysProcAttr{}, map[string]string{name: "x"}); err == nil {
			t.Errorf("Prepare took %q", name)
		}
		if err := CopySecrets(t.TempDir(), map[string]string{name: secretFile(t, "x")}); err == nil {
			t.Errorf("CopySecrets took %q", name)
		}
	}
	large := secretFile(t, strings.Repeat("x", maxSecretBytes+1))
	if err := CopySecrets(t.TempDir(), map[string]string{"large": large}); err == nil {
		t.Error("a secret over the limit was taken")
	}
}
