package watchdog

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Output reads a process's output up to the process's end. A process that left its group
// may still hold the pipe, but what it writes after the end is discarded.
type Output struct {
	file *os.File
	// ended says that the process has ended. left is the number of bytes still to read.
	ended bool
	left  int
}

// End ends the output. Call it once, when the process has ended. It does not wait for the
// reader.
func (o *Output) End() { _ = o.file.SetReadDeadline(time.Unix(1, 0)) }

// Read implements io.Reader.
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

// finish asks the kernel how many bytes the process has left in the pipe. It loses none of
// them, however late it runs.
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
