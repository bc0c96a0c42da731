package spawn

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/cluster/local/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output starts p on a thread that lives until it has ended, and returns what it prints and
// how it ended.
func output(t *testing.T, p Process) (printed string, status unix.WaitStatus, err error) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if p.Files == nil {
		p.Files = []uintptr{0, write.Fd(), write.Fd()}
	}
	pid, err := Start(p)
	write.Close()
	if err != nil {
		return "", 0, err
	}
	text, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	return string(text), status, nil
}

func shell(script string) Process {
	return Process{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH"), "OWN=1"}, Group: -1}
}

func TestProcess(t *testing.T) {
	const inherited = "ls /proc/$$/fd"
	others, err := exec.Command("sh", "-c", inherited).Output()
	if err != nil {
		t.Fatal(err)
	}
	limited := shell("ulimit -n")
	limited.OpenFiles = &unix.Rlimit{Cur: 77, Max: 99}
	elsewhere := shell("pwd")
	elsewhere.Dir = "/usr"
	for want, p := range map[string]Process{
		"1\n":          shell("echo $OWN"),
		"/usr\n":       elsewhere,
		"77\n":         limited,
		string(others): shell(inherited),
		"leader\n":     shell("test $(cut -d' ' -f5 /proc/$$/stat) = $$ && echo leader"),
	} {
		if got, status, err := output(t, p); got != want || err != nil || status.Signaled() {
			t.Errorf("%v: %q %v %v", p.Argv, got, status, err)
		}
	}
	if os.Geteuid() != 0 {
		t.Log("only root can change the user; nothing more to try")
		return
	}
	other := shell("id -u; id -g; id -G")
	other.User = 12345
	if got, _, err := output(t, other); got != "12345\n12345\n12345\n" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

// Every descriptor goes to its place, although another one may be there.
func TestDescriptorsAreNotLost(t *testing.T) {
	var files []*os.File
	for i := range 3 {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		fmt.Fprint(file, i)
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	// The numbers are those of the files and of places among them.
	p := shell("cat <&0; cat <&3; cat <&4; cat <&5")
	p.Files = []uintptr{files[2].Fd(), write.Fd(), 2, files[1].Fd(), files[0].Fd(), files[0].Fd()}
	if _, _, err := output(t, p); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if got, err := io.ReadAll(read); string(got) != "210" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

func TestProcessesThatCannotStart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(data, []byte("neither a program nor a script"), 0o700); err != nil {
		t.Fatal(err)
	}
	program := func(path string) Process { return Process{Path: path, Argv: []string{path}, Group: -1} }
	lost := shell("true")
	lost.Dir = "/no/such/directory"
	zero := shell("true")
	zero.Env = []string{"A=\x00"}
	closed := shell("true")
	closed.Files = []uintptr{1 << 20}
	badFilter := shell("true")
	badFilter.Filter = []unix.SockFilter{{Code: unix.BPF_LD}}
	grouped := shell("true")
	grouped.Group = 1 << 20
	before := descriptors(t)
	for _, c := range []struct {
		process Process
		reason  error
		says    string
	}{
		{program("/no/such/program"), fs.ErrNotExist, "fork/exec /no/such/program: no such file or directory"},
		{program("/etc/passwd"), fs.ErrPermission, "fork/exec /etc/passwd: permission denied"},
		{program(data), unix.ENOEXEC, "exec format error"},
		{lost, fs.ErrNotExist, "change the directory to start /bin/sh: no such file"},
		{zero, unix.EINVAL, "fork/exec /bin/sh: invalid argument"},
		{closed, unix.EBADF, "pass descriptors to /bin/sh: bad file descriptor"},
		{badFilter, unix.EINVAL, "filter the system calls of /bin/sh: invalid argument"},
		{grouped, unix.EBADF, "fork to start /bin/sh: bad file descriptor"},
	} {
		_, _, err := output(t, c.process)
		if path := new(fs.PathError); !errors.As(err, &path) || !errors.Is(err, c.reason) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q, want %q", err, c.says)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, before it were %d", after, before)
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a process is left: %v", err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// A process with the filter runs, and so does its child.
func TestFilteredProcess(t *testing.T) {
	p := shell("grep ^Seccomp: /proc/self/status; grep NoNewPrivs /proc/self/status")
	var err error
	if p.Filter, err = Filter(); err != nil {
		t.Logf("%v; nothing more to try", err)
		return
	}
	if got, _, err := output(t, p); got != "Seccomp:\t2\nNoNewPrivs:\t1\n" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

func TestDiesWithTheThread(t *testing.T) {
	var pid int
	var err error
	process.Apart(func() (clean bool) {
		pid, err = Start(shell("exec sleep 600"))
		return false // The thread ends.
	})
	if err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.Signal() != unix.SIGKILL {
		t.Errorf("%v %v", status, err)
	}
}

func TestProcessInGroup(t *testing.T) {
	dir := ""
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var stat unix.Statfs_t
		if err := unix.Statfs(root, &stat); err == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC {
			dir = filepath.Join(root, fmt.Sprintf("faas-infer-test-%d", os.Getpid()))
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Logf("no control group of version 2 (%v); nothing more to try", err)
		return
	}
	defer os.Remove(dir)
	group, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	p := shell("grep ^0: /proc/self/cgroup")
	p.Group = int(group.Fd())
	p.Filter, _ = Filter()
	if got, _, err := output(t, p); !strings.HasSuffix(got, filepath.Base(dir)+"\n") || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

// The new processes use this one's memory for a moment, while other threads and the garbage
// collector go on.
func TestManyAtOnce(t *testing.T) {
	filter, _ := Filter()
	deadline := time.Now().Add(time.Second)
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for n := 0; time.Now().Before(deadline); n++ {
				p := shell(fmt.Sprintf("echo %d", n))
				if p.Filter = filter; i == 0 {
					p.Path = "/no/such/program"
				}
				if got, _, err := output(t, p); (err != nil) != (i == 0) || err == nil && got != fmt.Sprintf("%d\n", n) {
					t.Errorf("%q %v", got, err)
				}
			}
		})
	}
	work.Go(func() {
		for time.Now().Before(deadline) {
			runtime.GC()
			_ = make([]byte, 1<<20)
		}
	})
	work.Wait()
}
