package watchdog

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/sandbox"
)

// open makes a family that starts real processes; only one may be open.
func open(t *testing.T) *Family {
	t.Helper()
	cell, err := sandbox.EnterFunction(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := newFamily(cell)
	t.Cleanup(func() {
		f.Close()
		cell.Close()
	})
	return f
}

// start starts a shell script whose output comes from the pipe.
func start(t *testing.T, f *Family, script string) (*Member, *Output) {
	t.Helper()
	pipes, err := openPipes(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pipes.Close)
	m, err := f.Start(Program{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: os.Environ()}, pipes.Theirs)
	pipes.CloseTheirs()
	if err != nil {
		t.Fatal(err)
	}
	return m, pipes.Stdout
}

// said reads the first line that a process writes.
func said(t *testing.T, from *Output) string {
	t.Helper()
	_ = from.file.SetReadDeadline(time.Now().Add(time.Minute))
	line := make([]byte, 100)
	n, err := from.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(line[:n]))
}

func TestHowProcessesEnd(t *testing.T) {
	f := open(t)
	for script, want := range map[string]string{
		"exit 0": "", "exit 7": "exit status 7", "kill -TERM $$": "signal: terminated", "kill -KILL $$": "signal: killed",
	} {
		m, _ := start(t, f, script)
		<-m.Exited()
		got := ""
		if err := m.Failure(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
		m.Signal(unix.SIGKILL) // It is nobody's any more.
	}
	if f.User() != 0 {
		t.Errorf("user %d", f.User())
	}
}

func TestGroupEndsWithItsLeader(t *testing.T) {
	f := open(t)
	m, out := start(t, f, "sleep 1000 & echo $!")
	pid := said(t, out)
	<-m.Exited()
	waitGone(t, pid)
}

func waitGone(t *testing.T, pid string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat("/proc/" + pid); err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s is still there", pid)
		}
	}
}

// Orphans that left their group are killed with the family.
func TestOrphansEndWithTheFamily(t *testing.T) {
	f := open(t)
	m, out := start(t, f, "setsid sh -c 'sleep 1000 & echo $!; wait' & sleep 1000")
	orphan := said(t, out)
	m.Signal(unix.SIGKILL)
	<-m.Exited()
	if _, err := os.Stat("/proc/" + orphan); err != nil {
		t.Error("it ended with the group that it left")
	}
	f.Close()
	waitGone(t, orphan)
	if _, err := f.Start(Program{Path: "/bin/true"}, [3]*os.File{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed family starts: %v", err)
	}
	if left := children(); len(left) != 0 {
		t.Errorf("children left: %v", left)
	}
}

func TestProgramThatDoesNotExist(t *testing.T) {
	f := open(t)
	if _, err := f.Start(Program{Path: "/no/such/file", Argv: []string{"x"}}, [3]*os.File{os.Stdin, os.Stdout, os.Stderr}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
