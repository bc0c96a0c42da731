package e2e

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// network is a network of its own with a loopback interface only, so that the gateway's ports are free
// there. It is that of one thread, which starts the processes and opens the sockets.
type network struct{ starts chan func() }

// ownNetworks reports whether this user may make networks.
var ownNetworks = sync.OnceValue(func() bool {
	n, err := openNetwork()
	if err == nil {
		n.close()
	}
	return err == nil
})

// newNetwork makes a network for a test. Processes that are left end with it.
func newNetwork(t *testing.T) *network {
	t.Helper()
	n, err := openNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	return n
}

func openNetwork() (*network, error) {
	n, ready := &network{make(chan func())}, make(chan error)
	go func() {
		runtime.LockOSThread() // Nobody unlocks the thread, so it ends with this goroutine.
		err := separate()
		ready <- err
		if err != nil {
			return
		}
		for start := range n.starts {
			start()
		}
	}()
	return n, <-ready
}

// separate gives the calling thread a network of its own.
func separate() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	loopback, err := unix.NewIfreq("lo")
	if err == nil {
		loopback.SetUint16(unix.IFF_UP)
		err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, loopback)
	}
	return errors.Join(err, unix.Close(fd))
}

// do calls f in the network. A nil network is that of the tests.
func (n *network) do(f func() error) error {
	if n == nil {
		return f()
	}
	done := make(chan error)
	n.starts <- func() { done <- f() }
	return <-done
}

// start starts a process in the network. The kernel takes the end of the thread that starts a process for
// the death of its parent (Pdeathsig): a thread of the tests' own network may become that of another one,
// which ends with its test, so home's starts it. A provider of another test was ended so.
func (n *network) start(c *exec.Cmd) error {
	if n == nil {
		n = home()
	}
	return n.do(c.Start)
}

// home has a thread in the network of the tests that stays as long as they run.
var home = sync.OnceValue(func() *network {
	n := &network{make(chan func())}
	go n.stay()
	return n
})

// stay does what is asked of the network on one thread.
func (n *network) stay() {
	runtime.LockOSThread()
	for start := range n.starts {
		start()
	}
}

// run starts a process in the network, waits for its end, and returns its output.
func (n *network) run(c *exec.Cmd) ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := n.start(c)
	if err == nil {
		err = c.Wait()
	}
	return out.Bytes(), err
}

// dial connects to an address in the network.
func (n *network) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.do(func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// listen listens at an address in the network.
func (n *network) listen(address string) (l net.Listener, err error) {
	err = n.do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	return l, err
}

// client is [client] in the network.
func (n *network) client(t *testing.T) *http.Client {
	c := client(t)
	c.Transport.(*http.Transport).DialContext = n.dial
	return c
}

func (n *network) close() { close(n.starts) }

// A process that is to end with the tests does not end with a network of one of them.
func TestProcessesOutliveNetworks(t *testing.T) {
	if !ownNetworks() {
		t.Skip("this user may not make networks")
	}
	c := exec.Command("sleep", "3600")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := (*network)(nil).start(c); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		n, err := openNetwork()
		if err != nil {
			t.Error(err)
			break
		}
		n.close()
	}
	if err := c.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("it ended with %v", err)
	}
}
