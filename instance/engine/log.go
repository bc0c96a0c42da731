package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// logLimit is the variable with the size in bytes that the log of this process may have. The
// provider, which starts the process and moves full logs aside, sets it.
const logLimit = "FAAS_INFER_LOG_BYTES"

const (
	// rotationPatience is how long a line waits until the provider has moved a full log aside.
	// After that the provider is probably away, and lines are dropped until it is back.
	rotationPatience = 2 * time.Second
	// rotationPoll is the time between two looks at a full log.
	rotationPoll = 5 * time.Millisecond
	// lookAgain is the number of bytes between two looks at a file's size.
	lookAgain = 64 << 10
)

// Log returns a writer to this process's log. If w is standard error, and the provider bounds
// the file behind it, lines that find the file full wait until it has been moved aside. So a
// program that prints a lot is slowed down and cannot fill the disk. Any other w is returned as
// it is.
func Log(w io.Writer) io.Writer {
	if w == os.Stderr {
		return stderr()
	}
	return w
}

// LogFile is Log for standard error as a file, for processes that write to it themselves.
var LogFile = sync.OnceValue(func() *os.File {
	log, ok := stderr().(*boundLog)
	if !ok {
		return os.Stderr
	}
	r, w, err := os.Pipe()
	if err != nil {
		fmt.Fprintf(log, "the log of child processes has no bound: %v\n", err)
		return os.Stderr
	}
	go func() { _, _ = io.Copy(log, r) }() // As long as this process runs.
	return w
})

// stderr is standard error within its bound.
var stderr = sync.OnceValue(func() io.Writer {
	limit, err := strconv.ParseInt(os.Getenv(logLimit), 10, 64)
	info, statErr := os.Stderr.Stat()
	if err != nil || statErr != nil || limit <= 0 || !info.Mode().IsRegular() {
		return os.Stderr
	}
	return &boundLog{file: os.Stderr, limit: limit}
})

// boundLog writes to a file that another process moves aside when it is full, by copying and
// truncating it.
type boundLog struct {
	mu    sync.Mutex
	file  *os.File
	limit int64
	// left is the number of bytes until the next look at the file's size.
	left int64
	// dropped counts the bytes that were dropped since the file has been full for too long.
	dropped int64
}

// Write implements io.Writer.
func (l *boundLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.room(int64(len(p))) {
		l.dropped += int64(len(p))
		return len(p), nil
	}
	if l.dropped > 0 {
		note := fmt.Appendf(nil, "%s %d bytes of output were dropped, because the full log was not moved aside\n", time.Now().UTC().Format(time.RFC3339Nano), l.dropped)
		l.dropped = 0
		if _, err := l.write(note); err != nil {
			return 0, err
		}
	}
	return l.write(p)
}

// write writes under a lock that keeps the other process from cutting the file between copying
// its end and truncating it.
func (l *boundLog) write(p []byte) (int, error) {
	lockErr := unix.Flock(int(l.file.Fd()), unix.LOCK_SH) // A file system may have no locks.
	n, err := l.file.Write(p)
	if lockErr == nil {
		err = errors.Join(err, unix.Flock(int(l.file.Fd()), unix.LOCK_UN))
	}
	return n, err
}

// room waits until the file has room for n bytes, for a short time, and reports whether it has.
func (l *boundLog) room(n int64) bool {
	if l.left -= n; l.left >= 0 {
		return true
	}
	for end := time.Now().Add(rotationPatience); ; time.Sleep(rotationPoll) {
		info, err := l.file.Stat()
		if err != nil || info.Size() == 0 || info.Size()+n <= l.limit {
			if err == nil { // Others write to it, too.
				l.left = min(l.limit-info.Size()-n, lookAgain)
			}
			return true
		}
		if l.dropped > 0 || time.Now().After(end) {
			return false
		}
	}
}
