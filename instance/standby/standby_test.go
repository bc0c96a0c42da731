package standby

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/shared"
)

// socketEnv makes the test's program a standby.
const socketEnv = "STANDBY_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(socketEnv); socket != "" {
		os.Exit(stand(socket))
	}
	goleak.VerifyTestMain(m)
}

// stand is a standby. As an instance it writes its arguments, reports that it is ready, waits for
// SIGTERM if its directory is not /, and exits with 7.
func stand(socket string) int {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	b, err := Await(ctx, socket, os.Stdout, sick)
	if b == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	run, end := context.WithCancel(context.Background())
	b.Follow(end, func() { os.Exit(1) })
	fmt.Println(b.Arguments, b.Env)
	if b.Report > 0 {
		_, _ = os.NewFile(uintptr(b.Report), "").WriteString("ready\n")
	}
	if b.Dir != "/" {
		<-run.Done()
	}
	if b.Exit(7) != nil {
		return 1
	}
	return 7
}

// sick reports that the process cannot serve if its share is 13.
func sick() error {
	if os.Getenv("SHARE") == "13" {
		return errors.New("the device is lost")
	}
	return nil
}

func ours(name string) bool { return name == "SHARE" }

func keep(t *testing.T) (*Keeper, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	k, err := NewKeeper(Options{
		Dir: dir, Ours: ours, Log: zerolog.Nop(),
		Command: func(socket string) []string { return []string{"/usr/bin/env", socketEnv + "=" + socket, self} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k, dir
}

// await waits until there is a file, or none.
func await(t *testing.T, file string, there bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(file); (err == nil) == there {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: there is %t", file, !there)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// order is Take once the standby listens: its socket is there before.
func order(socket string, o Order, log *os.File, ready int) (*Taken, error) {
	for {
		taken, err := Take(socket, o, log, ready)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return taken, err
		}
	}
}

// take takes the standby of a share. The result has what it wrote.
func take(t *testing.T, dir, share, in string, ready *os.File) (*Taken, func() string) {
	t.Helper()
	env := []string{"SHARE=0", "OTHER=1", "SHARE=" + share}
	socket := SocketOf(dir, env, ours)
	await(t, socket, true)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	fd := 0
	if ready != nil {
		fd = int(ready.Fd())
	}
	taken, err := order(socket, Order{Arguments: []string{"--model", "m"}, Env: env, Dir: in}, log, fd)
	if err != nil {
		t.Fatal(err)
	}
	return taken, func() string {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// A standby becomes the instance that takes it: it has its arguments, output and descriptor, and its
// exit code and signals pass. Then another one stands by.
func TestTake(t *testing.T) {
	k, dir := keep(t)
	k.Used("gpu", []string{"SHARE=40"})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	taken, log := take(t, dir, "40", "/", w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil || string(text) != "ready\n" {
		t.Errorf("%q, %v", text, err)
	}
	if code := taken.Wait(t.Context()); code != 7 || log() != "[--model m] [SHARE=0 OTHER=1 SHARE=40]\n" {
		t.Errorf("code %d, %q", code, log())
	}
	next, _ := take(t, dir, "40", "/tmp", nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := next.Wait(ctx); code != 7 {
		t.Errorf("code %d after SIGTERM", code)
	}
}

// The keeper has one standby for each device, and none after Close. One that has become an instance
// lives on.
func TestKeeper(t *testing.T) {
	k, dir := keep(t)
	socket := func(share string) string { return SocketOf(dir, []string{"SHARE=" + share}, ours) }
	k.Used("gpu", []string{"SHARE=40"})
	k.Used("other", []string{"SHARE=50"})
	await(t, socket("40"), true)
	await(t, socket("50"), true)
	taken, _ := take(t, dir, "40", "/tmp", nil)
	await(t, socket("40"), true)
	k.Used("gpu", []string{"SHARE=40"})
	k.Used("gpu", []string{"SHARE=60"})
	await(t, socket("60"), true)
	await(t, socket("40"), false)
	k.Drop("other")
	k.Drop("none")
	await(t, socket("50"), false)
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, socket("60"), false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := taken.Wait(ctx); code != 7 {
		t.Errorf("code %d", code)
	}
	if _, err := Take(socket("60"), Order{}, os.Stderr, 0); err == nil {
		t.Error("one is left")
	}
}

// A standby that cannot start is tried again at the next instance, and a killed one counts as SIGKILL.
func TestFailures(t *testing.T) {
	k, dir := keep(t)
	own := k.options.Command
	k.options.Command = func(string) []string { return []string{"/bin/false"} }
	k.Used("gpu", []string{"SHARE=1"})
	for deadline := time.Now().Add(time.Minute); ; {
		k.mu.Lock()
		n := len(k.kept)
		k.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the failed one is kept")
		}
		<-time.After(2 * time.Millisecond)
	}
	k.options.Command = own
	k.Used("gpu", []string{"SHARE=1"})
	taken, _ := take(t, dir, "1", "/tmp", nil)
	pid, err := shared.Owner(taken.conn)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := taken.Wait(t.Context()); code != 137 {
		t.Errorf("code %d", code)
	}
}

// A standby that has lost its device is not taken.
func TestSick(t *testing.T) {
	k, dir := keep(t)
	k.Used("gpu", []string{"SHARE=13"})
	socket := SocketOf(dir, []string{"SHARE=13"}, ours)
	await(t, socket, true)
	if _, err := order(socket, Order{}, os.Stderr, 0); err == nil {
		t.Error("it was taken")
	}
	await(t, socket, false)
}

// A standby moves into the control groups of the process that takes it, wherever they are mounted.
func TestGroupDir(t *testing.T) {
	mounts := `24 1 0:21 / /sys/fs/cgroup rw - tmpfs tmpfs rw
25 24 0:22 / /sys/fs/cgroup/cpu,cpuacct rw shared:1 - cgroup cgroup rw,cpu,cpuacct
26 24 0:23 /pod /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
27 24 0:24 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`
	for line, want := range map[string]string{
		"4:cpu,cpuacct:/a/b": "/sys/fs/cgroup/cpu,cpuacct/a/b",
		"5:memory:/pod/x":    "/sys/fs/cgroup/memory/x",
		"0::/f":              "/sys/fs/cgroup/unified/f",
		"5:memory:/other":    "",
		"6:pids:/a":          "",
		"nonsense":           "",
	} {
		if got, err := groupDir(line, mounts); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, not %q", line, got, err, want)
		}
	}
}

// All threads of a standby move to the cores of the process that takes it.
func TestCores(t *testing.T) {
	var own, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		t.Fatal(err)
	}
	for core := range 1024 {
		if own.IsSet(core) {
			one.Set(core)
			break
		}
	}
	c := exec.Command("cat")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = c.Wait() }()
	for _, want := range []unix.CPUSet{one, own} {
		if err := unix.SchedSetaffinity(c.Process.Pid, &want); err != nil {
			t.Fatal(err)
		}
		if err := adopt(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			id, _ := strconv.Atoi(thread.Name())
			var is unix.CPUSet
			if err := unix.SchedGetaffinity(id, &is); err == nil && is != want {
				t.Errorf("thread %d is on other cores", id)
			}
		}
	}
}

// A keeper with one socket keeps the process there, whatever the environment is.
func TestOneSocket(t *testing.T) {
	k, dir := keep(t)
	socket := filepath.Join(dir, "empty.sock")
	k.options.Socket, k.options.Ours = socket, nil
	k.Used("shadows", nil)
	await(t, socket, true)
	k.Used("shadows", []string{"SHARE=2"})
	taken, err := order(socket, Order{Arguments: []string{"x"}, Dir: "/"}, os.Stderr, 0)
	if err != nil {
		t.Fatal(err)
	}
	if code := taken.Wait(t.Context()); code != 7 {
		t.Errorf("it exits with %d", code)
	}
	await(t, socket, true)
	if !k.Keeps("shadows") {
		t.Error("none is kept")
	}
	k.Drop("shadows")
	await(t, socket, false)
}
