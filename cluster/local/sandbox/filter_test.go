package sandbox

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/cluster/local/sandbox/spawn"
)

// makeCalls makes system calls and prints how they end.
func makeCalls() {
	// An array of zeros for all that the calls point to.
	memory := uintptr(unsafe.Pointer(new([256]byte)))
	for _, c := range []struct {
		name          string
		number        uintptr
		first, second uintptr
		third, fourth uintptr
	}{
		{"add_key", unix.SYS_ADD_KEY, memory, memory, 0, 0},
		{"bpf", unix.SYS_BPF, unix.BPF_PROG_TYPE_UNSPEC, memory, 0, 0},
		{"clone", unix.SYS_CLONE, unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD), 0, 0, 0},
		{"clone3", unix.SYS_CLONE3, memory, 0, 0, 0},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, 1, 0, 0, 0},
		{"keyctl", unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, 0, 0, 0},
		{"mount", unix.SYS_MOUNT, memory, memory, memory, unix.MS_BIND},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0},
		{"setns", unix.SYS_SETNS, ^uintptr(0), 0, 0, 0},
		{"socket", unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET, 0, 0},
		{"unshare", unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0, 0},
		{"userfaultfd", unix.SYS_USERFAULTFD, ^uintptr(0), 0, 0, 0},
		{"4095", 4095, 0, 0, 0, 0},
		{"getppid", unix.SYS_GETPPID, 0, 0, 0, 0},
		{"ptrace", unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0},
		{"socket of IPv4", unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0, 0},
	} {
		_, _, errno := unix.RawSyscall6(c.number, c.first, c.second, c.third, c.fourth, 0, 0)
		fmt.Printf("%s: %s\n", c.name, unix.ErrnoName(errno))
	}
}

const filtered = `add_key: EPERM
bpf: EPERM
clone: EPERM
clone3: ENOSYS
io_uring_setup: EPERM
keyctl: EPERM
mount: EPERM
perf_event_open: EPERM
setns: EPERM
socket: EPERM
unshare: EPERM
userfaultfd: EPERM
4095: ENOSYS
getppid: 
ptrace: 
socket of IPv4: 
`

// The program is the test's own, so it also shows that Go's runtime works. A grandchild has
// the filter, too.
func TestForbiddenCallsFail(t *testing.T) {
	if err := FilterAvailable(); err != nil {
		t.Logf("%v; nothing more to try", err)
		return
	}
	const script = "env SANDBOX_TEST_CHILD=1 SANDBOX_TEST_CALLS=1 $FAAS_INFER"
	if got := runIn(t, Function{Bundle: t.TempDir()}, script); got != filtered {
		t.Errorf("without isolation:\n%s", got)
	}
	if f, ok := isolated(t); ok {
		if got := runIn(t, f, script); got != filtered {
			t.Errorf("isolated:\n%s", got)
		}
	}
}

// What a common runtime does needs no forbidden call.
func TestOrdinaryProgramsWork(t *testing.T) {
	const program = `
import concurrent.futures, multiprocessing, socket, subprocess, tempfile, threading, mmap, signal, resource, os, asyncio, ctypes
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert sum(pool.map(lambda n: n * n, range(100))) == 328350
multiprocessing.set_start_method("fork")
child = multiprocessing.Process(target=os._exit, args=(7,))
child.start(); child.join()
assert child.exitcode == 7
assert subprocess.run(["cat"], input=b"x", stdout=subprocess.PIPE).stdout == b"x"
with tempfile.TemporaryFile() as f, mmap.mmap(-1, 4096) as m:
    f.write(b"y"); m[0] = 1
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.sendall(b"z")
assert server.accept()[0].recv(1) == b"z"
async def main():
    p = await asyncio.create_subprocess_exec("true")
    return await p.wait()
assert asyncio.run(main()) == 0
signal.setitimer(signal.ITIMER_REAL, 0)
os.sched_setaffinity(0, os.sched_getaffinity(0))
os.nice(1)
print("fine")
`
	functions := []Function{{Bundle: t.TempDir()}}
	if f, ok := isolated(t); ok {
		functions = append(functions, f)
	}
	for _, f := range functions {
		if got := runIn(t, f, "python3 -c '"+program+"'"); got != "fine\n" {
			t.Errorf("%+v: %s", f, got)
		}
	}
}

// The process that starts the function's has no filter.
func TestOnlyTheFunctionIsFiltered(t *testing.T) {
	if err := FilterAvailable(); err != nil {
		t.Logf("%v; nothing more to try", err)
		return
	}
	got := runIn(t, Function{Bundle: t.TempDir()}, "grep ^Seccomp: /proc/self/status; grep ^Seccomp: /proc/$PPID/status; grep NoNew /proc/$PPID/status")
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^Seccomp:.*\n`).FindString(string(own))
	if want := "Seccomp:\t2\n" + line + "NoNewPrivs:\t0\n"; got != want {
		t.Errorf("function and watchdog: %q, want %q", got, want)
	}
}

// Go raises its own limit on open files. Programs that use select(2) fail above theirs.
func TestFunctionsKeepTheLimitOnOpenFiles(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	// Set by this package, the limit is that of children, too.
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 500, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	want := fmt.Sprintf("500\n%d\n", limit.Max)
	if got := runIn(t, Function{Bundle: t.TempDir()}, "ulimit -n; ulimit -Hn"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// hidden makes the kernel look as if it had no seccomp.
var hidden = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_SECCOMP},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
}

func TestKernelWithoutFilters(t *testing.T) {
	if err := FilterAvailable(); err != nil {
		t.Logf("%v; nothing more to try", err)
		return
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process.Apart(func() (clean bool) {
		var pid int
		if pid, err = spawn.Start(spawn.Process{
			Path: self, Argv: []string{self}, Group: -1, Filter: hidden, Files: []uintptr{0, write.Fd(), write.Fd()},
			Env: []string{"SANDBOX_TEST_CHILD=1", "SANDBOX_TEST_SCRIPT=grep ^Seccomp_filters /proc/self/status", "SANDBOX_TEST_FILTER=1", "SANDBOX_TEST_BUNDLE=/", "PATH=" + os.Getenv("PATH")},
		}); err == nil {
			_, err = unix.Wait4(pid, nil, 0, nil)
		}
		return false
	})
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(read)
	if want := "the kernel has no seccomp filters or is older than Linux 4.14\ntrue <nil> <nil>\nSeccomp_filters:\t1\n"; string(got) != want || err != nil {
		t.Errorf("it printed %q, %v, want %q", got, err, want)
	}
}
