package watchdog

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Output is what a process writes, up to its end: a process that left its group
// may live on and have the pipe, but what it writes then is nobody's.
type Output struct {
	file *os.File
	// ended tells that there is no more than the bytes left.
	ended bool
	left  int
}

// End is to be called once, when the process has ended. It does not wait for
// the reader.
func (o *Output) End() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) }

// Read is an io.Reader's.
func (o *Output) Read(p []byte) (int, error) {
	if !o.ended {
		n, err := o.file.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err := o.finish(); err != nil {
			return 0, err
		}
	}
	if o.left == 0 {
		return 0, io.EOF
	}
	n, err := o.file.Read(p[:min(len(p), o.left)])
	o.left -= n
	return n, err
}

// finish finds out what the process has left in the pipe. However late that is,
// nothing of it is lost.
func (o *Output) finish() error {
	o.ended = true
	conn, err := o.file.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { o.left, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return errors.Join(err, failed, o.file.SetReadDeadline(time.Time{}))
}

func (o *Output) close() { _ = o.file.Close() }
