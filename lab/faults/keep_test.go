package faults

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// roleEnv makes this test's program play another part.
const roleEnv = "FAAS_INFER_FAULTS_TEST"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleEnv); {
	case role == "keep" && os.Args[1] == "child":
		// It leaves a process behind that is nobody's child any more.
		c := exec.Command("sh", "-c", "sleep 1000 & echo $!")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		c.Stdout = os.Stdout
		if err := c.Run(); err != nil {
			os.Exit(1)
		}
		os.Exit(3)
	case role == "keep":
		code, err := Keep([]string{"child"})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
		os.Exit(code)
	case role == "clock":
		for s := bufio.NewScanner(os.Stdin); s.Scan(); {
			fmt.Println(time.Now().Unix())
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// What the bench leaves behind ends with its keeper, also where it has no namespaces of
// its own; the exit code is the bench's.
func TestKeep(t *testing.T) {
	for _, alone := range []bool{false, true} {
		c := exec.Command(os.Args[0], "keep")
		c.Env = append(os.Environ(), roleEnv+"=keep", dirEnv+"="+t.TempDir())
		if alone {
			c.Env = append(c.Env, aloneEnv+"=1")
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET}
		}
		var complaint strings.Builder
		c.Stderr = &complaint
		// The sleeper holds the other end of a pipe: it would not end if that lived.
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c.Stdout = write
		err = c.Start()
		write.Close()
		if alone && errors.Is(err, unix.EPERM) {
			t.Log("no namespaces for this user; nothing more to try")
			read.Close()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = read.SetReadDeadline(time.Now().Add(time.Minute))
		lines := bufio.NewScanner(read)
		n := 0
		for lines.Scan() {
			n++
		}
		if err := lines.Err(); err != nil || n != 1 {
			t.Errorf("alone %v: %d lines, %v: a process is left", alone, n, err)
		}
		read.Close()
		var exit *exec.ExitError
		if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("alone %v: %v: %s", alone, err, complaint.String())
		}
	}
}

// The groups that are written down go, with those within and beside, and no others.
func TestRemoveCgroups(t *testing.T) {
	dir, groups := t.TempDir(), t.TempDir()
	tree := filepath.Join(groups, "faas-infer-1")
	for _, group := range []string{"faas-infer-1/one/function", "faas-infer-1-provider", "faas-infer-2"} {
		if err := os.MkdirAll(filepath.Join(groups, group), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeCgroups(dir); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, treesFile), []byte(tree+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeCgroups(dir); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(groups)
	if err != nil || len(left) != 1 || left[0].Name() != "faas-infer-2" {
		t.Errorf("%v %v", left, err)
	}
}

// A process's clock is moved and moved back, and nobody else's.
func TestClock(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), roleEnv+"=clock")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = c.Wait() }()
	lines := bufio.NewScanner(out)
	off := func() time.Duration {
		t.Helper()
		fmt.Fprintln(in)
		if !lines.Scan() {
			t.Fatal("the process has ended")
		}
		seconds, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(time.Unix(seconds, 0)).Round(time.Minute)
	}
	if got := off(); got != 0 {
		t.Fatalf("%v off before", got)
	}
	moved, err := newClock(c.Process.Pid)
	if errors.Is(err, errNotHere) {
		t.Logf("%v; nothing more to try", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		if err := moved.move(by); err != nil {
			t.Fatal(err)
		}
		if got := off(); got != by {
			t.Errorf("%v off, want %v", got, by)
		}
	}
}
