package web

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"github.com/faas-infer/faas-infer/instance/duplex"
)

// Socket is a TCP or Unix connection with cheaper system calls.
//
// package net announces each read and write to Go's scheduler, because any system call may block. The first one after a
// pause wakes the scheduler's monitor, a thread that then looks every 20 µs whether the call has come back. A provider
// pauses before nearly every request. So it paid for two more threads' turns per request, on the core that also
// executes the models. These calls never block: the descriptor says EAGAIN, and the goroutine waits in the poller. So a
// Socket makes them without the announcement.
//
// If nothing else wakes the monitor, it sleeps until the next timer, at the latest. Until then nobody interrupts a
// goroutine that computes for long.
type Socket struct {
	net.Conn
	raw     syscall.RawConn
	in, out transfer
}

// NewSocket returns the connection as a [Socket]. It returns others, such as those with TLS, as they are.
func NewSocket(c net.Conn) net.Conn {
	if s := newSocket(c); s != nil && !raceDetected {
		return s
	}
	return c
}

// raceDetected: the race detector looks on. It takes what comes over package net's sockets for synchronised, so tests
// whose two ends are one process keep those.
var raceDetected bool

func newSocket(c net.Conn) *Socket {
	has, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := has.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{Conn: c, raw: raw}
	s.in.try, s.out.try = s.in.read, s.out.write
	return s
}

// Read implements net.Conn.
func (s *Socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.in.add(p)
	n, err := s.finish(&s.in, "read", s.raw.Read(s.in.try))
	if err == nil && n == 0 {
		err = io.EOF
	}
	return n, err
}

// Write implements net.Conn.
func (s *Socket) Write(p []byte) (int, error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	s.out.one[0] = p
	rest := net.Buffers(s.out.one[:])
	n, err := s.writeAll(&rest)
	s.out.one[0] = nil
	return int(n), err
}

// WriteBuffers does what [net.Buffers.WriteTo] does, also if the connection is a [Socket].
func WriteBuffers(c net.Conn, v *net.Buffers) (int64, error) {
	s, ok := c.(*Socket)
	if !ok {
		return v.WriteTo(c)
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return s.writeAll(v)
}

// writeAll writes until nothing is left. The lock is held.
func (s *Socket) writeAll(v *net.Buffers) (sent int64, err error) {
	for {
		for len(*v) > 0 && len((*v)[0]) == 0 {
			*v = (*v)[1:]
		}
		if len(*v) == 0 {
			return sent, nil
		}
		for _, b := range (*v)[:min(len(*v), partsPerCall)] {
			s.out.add(b)
		}
		n, err := s.finish(&s.out, "write", s.raw.Write(s.out.try))
		if err != nil {
			return sent, err
		}
		for sent += int64(n); n > 0; {
			taken := min(n, len((*v)[0]))
			if n -= taken; taken == len((*v)[0]) {
				(*v)[0] = nil
				*v = (*v)[1:]
			} else {
				(*v)[0] = (*v)[0][taken:]
			}
		}
	}
}

// finish returns the outcome of a transfer. failed is why it was not made.
func (s *Socket) finish(t *transfer, op string, failed error) (int, error) {
	clear(t.parts)
	t.parts = t.parts[:0]
	switch {
	case failed != nil:
		return 0, failed
	case t.errno != 0:
		return 0, &net.OpError{Op: op, Net: s.LocalAddr().Network(), Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError(op, t.errno)}
	}
	return t.n, nil
}

// CloseWrite implements what [duplex.CloseWrite] asks for.
func (s *Socket) CloseWrite() error { return duplex.CloseWrite(s.Conn) }

// partsPerCall is how many buffers Linux takes with one call.
const partsPerCall = 1024

// transfer is the present read or write of a [Socket].
type transfer struct {
	mu    sync.Mutex
	one   [1][]byte
	parts []syscall.Iovec
	n     int
	errno syscall.Errno
	// try is read or write. It is kept, since making it allocates.
	try func(fd uintptr) bool
}

func (t *transfer) add(p []byte) {
	if len(p) > 0 {
		part := syscall.Iovec{Base: &p[0]}
		part.SetLen(len(p))
		t.parts = append(t.parts, part)
	}
}

func (t *transfer) read(fd uintptr) bool  { return t.call(syscall.SYS_READV, fd) }
func (t *transfer) write(fd uintptr) bool { return t.call(syscall.SYS_WRITEV, fd) }

// call makes the system call. It returns false if the descriptor is not ready.
func (t *transfer) call(trap, fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(&t.parts[0])), uintptr(len(t.parts)))
		if errno != syscall.EINTR {
			t.n, t.errno = int(n), errno
			return errno != syscall.EAGAIN
		}
	}
}
