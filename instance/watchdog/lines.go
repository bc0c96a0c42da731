package watchdog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"time"
)

// longestLine is how many bytes of a line stand together in the log; the rest
// follows on lines of its own.
const longestLine = 16 << 10

// LineLog writes lines, each after the time in RFC 3339 and a space. It is safe for
// concurrent use; every line is one write.
type LineLog struct {
	mu   sync.Mutex
	out  io.Writer
	line []byte
}

// NewLineLog returns a log that writes to out.
func NewLineLog(out io.Writer) *LineLog { return &LineLog{out: out} }

// Printf writes one line. A log that cannot be written to is not the function's
// fault: errors are dropped.
func (l *LineLog) Printf(format string, values ...any) {
	l.write("", fmt.Appendf(nil, format, values...))
}

func (l *LineLog) write(prefix string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = time.Now().UTC().AppendFormat(l.line[:0], time.RFC3339Nano)
	l.line = append(l.line, ' ')
	l.line = append(l.line, prefix...)
	l.line = append(l.line, text...)
	l.line = append(l.line, '\n')
	_, _ = l.out.Write(l.line)
}

// readers are reused, as functions that fork for each request need one each.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, longestLine) }}

// Copy writes what comes from r line by line until it ends.
func (l *LineLog) Copy(r io.Reader, prefix string) {
	lines := readers.Get().(*bufio.Reader)
	lines.Reset(r)
	defer func() {
		lines.Reset(nil)
		readers.Put(lines)
	}()
	for {
		line, err := lines.ReadSlice('\n')
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 || err == nil {
			l.write(prefix, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// Logger returns a logger of the standard library's that writes to l.
func (l *LineLog) Logger() *log.Logger { return log.New(writer{l}, "", 0) }

type writer struct{ log *LineLog }

// Write is an io.Writer's.
func (w writer) Write(text []byte) (int, error) {
	w.log.write("", bytes.TrimRight(text, "\n"))
	return len(text), nil
}
