package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// playFunction is the main process of a function that runs a script.
func playFunction(script string) {
	if os.Getenv("SANDBOX_TEST_FILTER") != "" {
		fmt.Println(FilterAvailable())
		entry, err := PrepareFunction(&syscall.SysProcAttr{}, Function{Bundle: "/"}, 3)
		fmt.Println(strings.HasPrefix(entry, EnvSandbox), err, os.Setenv(EnvSandbox, strings.TrimPrefix(entry, EnvSandbox+"=")))
	}
	cell, err := EnterFunction(os.Getenv("SANDBOX_TEST_BUNDLE"))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	defer cell.Close()
	for _, note := range cell.Notes() {
		fmt.Println("note:", note)
	}
	child, err := cell.Start("/bin/sh", []string{"sh", "-c", script}, &os.ProcAttr{
		Env:   append(cell.Environment(), "PATH="+os.Getenv("PATH")),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stdout},
	})
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	if state, err := child.Wait(); err != nil || !state.Success() {
		fmt.Println("error:", state, err)
	}
}

// runIn runs a script in the isolation of f and returns its output.
func runIn(t *testing.T, f Function, script string) string {
	t.Helper()
	var attr syscall.SysProcAttr
	entry, err := PrepareFunction(&attr, f, 3)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(self)
	command.Env = []string{"SANDBOX_TEST_CHILD=1", "GORACE=atexit_sleep_ms=0", "SANDBOX_TEST_SCRIPT=" + script, "SANDBOX_TEST_BUNDLE=" + f.Bundle,
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", entry}
	command.SysProcAttr = &attr
	printed, _ := command.CombinedOutput()
	return string(printed)
}

// isolated returns an isolated function with a small bundle; ok is false if this machine
// does not support it.
func isolated(t *testing.T) (f Function, ok bool) {
	t.Helper()
	if err := FunctionAvailable(); err != nil {
		t.Logf("%v; nothing more to try", err)
		return f, false
	}
	if err := UsersAvailable(); err != nil {
		t.Logf("%v; nothing more to try", err)
		return f, false
	}
	bundle := filepath.Join(t.TempDir(), "bundle, with: odd\\characters")
	if err := os.MkdirAll(filepath.Join(bundle, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "handler"), []byte("#!/bin/sh\necho handled\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return Function{Isolated: true, Bundle: bundle, User: FirstUser + 7, Scratch: 1 << 20}, true
}

func TestFunctionSeesWhatItIsToSee(t *testing.T) {
	f, ok := isolated(t)
	if !ok {
		return
	}
	f.Hide = []string{"/usr/share", "/var/no/such/directory", "/tmp", "/home"}
	f.Secrets = map[string]string{"token": secretFile(t, "s3cr3t")}
	mounts := mountCount(t)
	for _, c := range []struct{ script, want string }{
		{"id -u; id -g; id -G", "^1900000007\n1900000007\n1900000007\n$"},
		{"pwd; ls; ./handler; echo $HOME", "^/home/app\nhandler\nsub\nhandled\n/home/app\n$"},
		{"ls -A /root /tmp /var/tmp /dev/shm", "^/dev/shm:\n\n/root:\n\n/tmp:\n\n/var/tmp:\n$"},
		{"ls -A /home; test -x $FAAS_INFER && echo program", "^app\nfaas-infer\nprogram\n$"},
		{"for d in /tmp /var/tmp /dev/shm .; do echo x > $d/new && cat $d/new; done", "^(x\n){4}$"},
		{"echo x > sub/new && rm handler && ls", "^sub\n$"},
		{"for d in / /etc /var /usr /home /root /var/openfaas/secrets /proc/sys/kernel; do touch $d/new 2>/dev/null && echo $d; done; true", "^$"},
		{"head -c 2000000 /dev/zero > /tmp/large", "No space left"},
		{"cat /var/openfaas/secrets/token; stat -c ' %a %u' /var/openfaas/secrets/token", "^s3cr3t 600 1900000007\n$"},
		{"echo x > /var/openfaas/secrets/token", "Read-only file system"},
		{"grep NoNewPrivs /proc/self/status; grep CapEff /proc/self/status", "^NoNewPrivs:\t1\nCapEff:\t0000000000000000\n$"},
		{"ls -d /proc/[0-9]* | wc -l", "^[2-5]\n$"},
		{"kill -9 1", "not permitted"},
		{"echo out > /dev/stdout; echo err > /dev/stderr", "^out\nerr\n$"},
		{"mount -t tmpfs none /tmp", "permission|denied|superuser|permitted"},
		{"grep -E 'Max (processes|core)' /proc/self/limits | tr -s ' '", "core file size 0 0 bytes \nMax processes 1024 1024"},
		{"ls -A /usr/share", "^$"},
		{"stat -c %u handler sub", "^1900000007\n1900000007\n$"},
	} {
		if got := runIn(t, f, c.script); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s: %q, want %s", c.script, got, c.want)
		}
	}
	if now := mountCount(t); now != mounts {
		t.Errorf("%d mounts, before it were %d", now, mounts)
	}
	if _, err := os.Stat(filepath.Join(f.Bundle, "sub", "new")); err == nil {
		t.Error("what the function wrote is in the bundle")
	}
	if _, err := os.Stat(filepath.Join(f.Bundle, "handler")); err != nil {
		t.Error(err)
	}
}

func TestReadOnlyBundle(t *testing.T) {
	f, ok := isolated(t)
	if !ok {
		return
	}
	f.ReadOnly = true
	if got := runIn(t, f, "./handler; echo x > new"); !strings.HasPrefix(got, "handled\n") || !strings.Contains(got, "Read-only file system") {
		t.Errorf("it printed %q", got)
	}
}

func TestPrivateNetwork(t *testing.T) {
	f, ok := isolated(t)
	if !ok {
		return
	}
	f.PrivateNetwork = true
	got := runIn(t, f, "cat /proc/net/dev | grep -c :; cat /proc/net/fib_trie | grep -c 127.0.0.1")
	if lines := strings.Fields(got); len(lines) != 2 || lines[0] != "1" || lines[1] == "0" {
		t.Errorf("interfaces and loopback addresses: %q", got)
	}
}

func TestOlderKernelsWay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("only root can try; nothing more to try")
		return
	}
	var writable string
	err := try(unix.CLONE_NEWNS, func() error {
		if err := cutOff(); err != nil {
			return err
		}
		if err := remountReadOnly(); err != nil {
			return err
		}
		for _, dir := range []string{"/", "/etc", "/dev/shm", "/sys/fs/cgroup", os.TempDir()} {
			if unix.Access(dir, unix.W_OK) == nil {
				writable += dir + " "
			}
		}
		return nil
	})
	if err != nil || writable != "" {
		t.Errorf("%v, writable are %s", err, writable)
	}
}

func TestFunctionWithoutRights(t *testing.T) {
	f := Function{Bundle: t.TempDir()}
	want := fmt.Sprintf("%s\n%d\nNoNewPrivs:\t1\n", f.Bundle, os.Geteuid())
	if got := runIn(t, f, "pwd; id -u; grep NoNewPrivs /proc/self/status"); got != want {
		t.Errorf("it printed %q, want %q", got, want)
	}
	if got := runIn(t, Function{Bundle: "/no/such/bundle"}, "true"); !strings.Contains(got, "bundle") {
		t.Errorf("without a bundle: %q", got)
	}
}

// mountCount counts the mounts of the machine at places where a sandbox has some.
func mountCount(t *testing.T) (count int) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	places := []string{"/tmp", "/var/tmp", "/dev/shm", "/root", "/home", SecretsDir, "/proc"}
	for line := range strings.Lines(string(mounts)) {
		target := strings.Fields(line)[1]
		if slices.Contains(places, target) || strings.HasPrefix(target, "/home/") {
			count++
		}
	}
	return count
}
