package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFreeAndTaken(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	address := l.Addr().String()
	err = CheckFree(address)
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("an address that is taken: %v", err)
	}
	for _, word := range []string{address, fmt.Sprintf("process %d", os.Getpid()), "web"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	l.Close()
	if err := CheckFree(address); err != nil {
		t.Errorf("an address that was given back: %v", err)
	}
}

// Listen gets an address that is released while it retries.
func TestWaitsForAnAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	release := time.AfterFunc(5*pause, func() { l.Close() })
	defer release.Stop()
	second, err := Listen(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
}

// An error that waiting cannot fix is returned at once.
func TestNoAddress(t *testing.T) {
	for _, address := range []string{"nonsense", "127.0.0.1:x", "127.0.0.1:99999", "192.0.2.1:80"} {
		if l, err := Listen(address); err == nil || errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%s: %v, %v", address, l, err)
		}
		if err := CheckFree(address); err == nil {
			t.Errorf("%s is free", address)
		}
	}
}

// An address that CheckFree has tried is free at once, even while processes start, which
// inherit open sockets.
func TestFreeWhileProcessesStart(t *testing.T) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	first, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	for range 500 {
		if err := CheckFree(first.Addr().String()); err != nil {
			t.Fatal(err)
		}
		// Not with Listen, which tries again.
		syscall.ForkLock.RLock()
		l, err := net.Listen("tcp", first.Addr().String())
		if err == nil {
			l.Close()
		}
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:107E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:107E 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 100 0 0 10 0
   2: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 100 0 0 10 0
   3: broken
`
	if got := listeners(table, 4222); len(got) != 1 || got[0] != "4711" {
		t.Errorf("port 4222: %v", got)
	}
	if got := listeners(table, 4223); len(got) != 0 {
		t.Errorf("port 4223: %v", got)
	}
}

// The kernel's table says whose the other end of a connection is. An end that nobody has open belongs to nobody.
func TestOwner(t *testing.T) {
	const table = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F91 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:8000 0100007F:1F91 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0000000000000000 100 0 0 10 0
   2: 0100007F:8001 0100007F:1F91 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 100 0 0 10 0
   3: 0000000000000000FFFF00000100007F:8002 0000000000000000FFFF00000100007F:1F91 01 00000000:00000000 00:00000000 00000000  1001        0 4713 1 0 100 0 0 10 0
   4: 00000000000000000000000001000000:8003 00000000000000000000000001000000:1F91 01 00000000:00000000 00:00000000 00000000  1002        0 4714 1 0 100 0 0 10 0
   5: broken
   6: 0100007F 0100007F:1F91 01 0 0 0 7 0 1 1 1
`
	for from, want := range map[string]int{"127.0.0.1:32768": 1000, "127.0.0.1:32769": -1, "127.0.0.1:32770": 1001, "[::1]:32771": 1002, "[::1]:32768": -1, "127.0.0.2:32768": -1} {
		end := netip.MustParseAddrPort(from)
		other := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 8081)
		if end.Addr().Is6() {
			other = netip.AddrPortFrom(netip.IPv6Loopback(), 8081)
		}
		if user, open := owner(table, end, other); open != (want >= 0) || open && user != want {
			t.Errorf("%s: user %d, open %v; want %d", from, user, open, want)
		}
	}
}

// A request is refused for the user of the process that sent it, and if that process hides by closing its connection.
func TestRefuseUsers(t *testing.T) {
	refused := func(user int) bool { return user == os.Getuid() }
	nobody := func(int) bool { return false }
	answers := make(chan error, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/refused":
			answers <- RefuseUsers(r, refused)
		case "/allowed":
			answers <- RefuseUsers(r, nobody)
		case "/hidden":
			<-r.Context().Done()
			answers <- RefuseUsers(r, nobody)
		}
	}))
	defer s.Close()
	for path, status := range map[string]int{"/refused": 403, "/allowed": 0, "/hidden": 403} {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		if path == "/hidden" {
			c.Close()
		}
		got := 0
		if err := <-answers; err != nil {
			got = StatusOf(err)
		}
		if got != status {
			t.Errorf("%s: %d, want %d", path, got, status)
		}
	}
	far := httptest.NewRequest("GET", "/", nil)
	far = far.WithContext(context.WithValue(far.Context(), http.LocalAddrContextKey, s.Listener.Addr()))
	if err := RefuseUsers(far, refused); err != nil {
		t.Errorf("from another machine: %v", err)
	}
}
