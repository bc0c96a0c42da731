package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// start runs a shell script as a child that nobody but the test reaps.
func start(t *testing.T, script string, env ...string) Identity {
	t.Helper()
	command := exec.Command("/bin/sh", "-c", script)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	command.Env = env
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Identify(command.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Process.Release(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-id.PID, syscall.SIGKILL)
		_, _ = syscall.Wait4(id.PID, nil, 0, nil)
	})
	return id
}

func follow(t *testing.T, id Identity) *Watch {
	t.Helper()
	w, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func TestExits(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0":                "exited with status 0",
		"exit 3":                "exited with status 3",
		"kill -KILL $$":         "killed by signal 9",
		"kill -TERM $$; exit 1": "killed by signal 15",
	} {
		for name, blind := range map[string]bool{"pidfd": false, "polling": true} {
			w := follow(t, start(t, script))
			if blind {
				w.Close()
				w.pidfd = nil
			}
			if err := w.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := w.Reap().String(); got != want {
				t.Errorf("%s, by %s: %q, want %q", script, name, got, want)
			}
			if w.Identity().Alive() {
				t.Errorf("%s: it is still alive", script)
			}
			if err := w.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
				t.Errorf("%s: signal after its exit: %v", script, err)
			}
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	w := follow(t, start(t, "sleep 1000"))
	for _, pidfd := range []*os.File{w.pidfd, nil} {
		w.pidfd, pidfd = pidfd, w.pidfd
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Millisecond, cancel)
		if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait: %v", err)
		}
		w.pidfd = pidfd
	}
}

// A grandchild stands for a process that an earlier provider started: not our
// child, reaped by somebody else.
func TestAProcessThatIsNotOurChild(t *testing.T) {
	printed, err := exec.Command("/bin/sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	for _, digit := range strings.TrimSpace(string(printed)) {
		pid = 10*pid + int(digit-'0')
	}
	id, err := Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	w := follow(t, id)
	if err := w.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Kernels before 6.15 cannot tell.
	if got := w.Reap().String(); got != "killed by signal 9" && got != "exited" {
		t.Errorf("it was %q", got)
	}
}

func TestARecycledPidIsSomebodyElse(t *testing.T) {
	id := start(t, "sleep 1000")
	before := id
	before.StartTime--
	if before.Alive() {
		t.Error("a process with another start time is alive")
	}
	if _, err := Open(before); !errors.Is(err, ErrGone) {
		t.Errorf("Open: %v", err)
	}
	other := id
	other.Boot = "another boot"
	if _, err := Open(other); !errors.Is(err, ErrGone) || other.Alive() {
		t.Errorf("a process of another boot: %v", err)
	}
	blind := &Watch{id: before}
	if err := blind.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("Signal: %v", err)
	}
	blind.KillGroup()
	if !id.Alive() {
		t.Error("the wrong process was killed")
	}
}

func TestMarkedProcessesAreFoundAndKilled(t *testing.T) {
	mark := fmt.Sprintf("PROCESS_TEST_MARK=a b %d", os.Getpid()) // No other test's.
	id := start(t, "setsid sleep 1000 & setsid sleep 1000 & exec sleep 1000", mark, "OTHER=1", "PATH="+os.Getenv("PATH"))
	list := func() ([]int, error) { return Marked(mark) }
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		pids, err := list()
		if err != nil {
			t.Fatal(err)
		}
		if len(pids) == 3 && slices.Contains(pids, id.PID) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("found %v", pids)
		}
	}
	if err := KillAll(list, time.Minute); err != nil {
		t.Fatal(err)
	}
	if pids, err := list(); err != nil || len(pids) != 0 {
		t.Errorf("left: %v, %v", pids, err)
	}
}

func TestKillAllSparesUsAndGivesUp(t *testing.T) {
	if err := KillAll(func() ([]int, error) { return []int{os.Getpid()}, nil }, time.Second); err != nil {
		t.Error(err)
	}
	// A zombie cannot be killed any further.
	zombie := start(t, "exit 0")
	if err := follow(t, zombie).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := KillAll(func() ([]int, error) { return []int{zombie.PID}, nil }, 10*time.Millisecond); err == nil {
		t.Error("it did not say that one is left")
	}
}

func TestUsage(t *testing.T) {
	id := start(t, "while :; do :; done")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		cpu, memory, err := Usage(id)
		if err != nil {
			t.Fatal(err)
		}
		if cpu > 0 && memory > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v CPU and %d bytes after a minute", cpu, memory)
		}
	}
	id.StartTime++
	if _, _, err := Usage(id); !errors.Is(err, ErrGone) {
		t.Errorf("usage of somebody else: %v", err)
	}
}

func FuzzParseStat(f *testing.F) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("1 (a) b) (c) Z 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22"))
	f.Add([]byte("1 (x"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := parseStat(raw)
		if err == nil && s.state == 0 {
			t.Errorf("%q has no state", raw)
		}
	})
}

func TestParseStatWithAParenthesisInTheName(t *testing.T) {
	s, err := parseStat([]byte("1 (a) b) (c) Z 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24"))
	if err != nil || s.state != 'Z' || s.cpuTicks != 29 || s.startTime != 22 || s.rssPages != 24 || !s.dead() {
		t.Errorf("%+v, %v", s, err)
	}
}
