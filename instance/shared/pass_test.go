package shared

import (
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// connected returns both ends of a Unix socket.
func connected(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "end")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		t.Cleanup(func() { _ = c.Close() })
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

// open returns the number of open descriptors.
func open(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A file that is passed on is the same file, and is not inherited by programs.
func TestPass(t *testing.T) {
	a, b := connected(t)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := Pass(a, []byte("hello"), int(file.Fd()), int(file.Fd())); err != nil {
		t.Fatal(err)
	}
	if pid, err := Owner(b); pid != os.Getpid() || err != nil {
		t.Errorf("process %d, %v", pid, err)
	}
	data := make([]byte, 9)
	n, got, err := Receive(b, data, 2)
	if err != nil || string(data[:n]) != "hello" || len(got) != 2 {
		t.Fatalf("%q with %v, %v", data[:n], got, err)
	}
	defer CloseAll(got)
	var is, want unix.Stat_t
	if err := unix.Fstat(got[1], &is); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fstat(int(file.Fd()), &want); err != nil || is.Ino != want.Ino {
		t.Errorf("file %d, not %d; %v", is.Ino, want.Ino, err)
	}
	if flags, err := unix.FcntlInt(uintptr(got[0]), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %x, %v", flags, err)
	}
}

// What has more descriptors than expected is refused, and leaves none open.
func TestTooMany(t *testing.T) {
	a, b := connected(t)
	before := open(t)
	if err := Pass(a, []byte{0}, 0, 0, 0, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, got, err := Receive(b, make([]byte, 1), 2); err == nil {
		t.Errorf("%v came", got)
	}
	if after := open(t); after != before {
		t.Errorf("%d descriptors are open, not %d", after, before)
	}
}
