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

// longestLine is the maximum length in bytes of a line in the log. A longer line is split.
const longestLine = 16 << 10

// LineLog writes lines, each after the time in RFC 3339 and a space. Every line is one
// write. It is safe for concurrent use.
type LineLog struct {
	mu   sync.Mutex
	out  io.Writer
	line []byte
}

// NewLineLog returns a log that writes to out.
func NewLineLog(out io.Writer) *LineLog { return &LineLog{out: out} }

// Printf writes one line. It ignores errors: a log that fails must not stop the function.
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

// readers pools readers: functions that fork need one for each request.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, longestLine) }}

// Copy copies r line by line until its end, each line after prefix.
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

// Logger returns a standard log.Logger that writes to l.
func (l *LineLog) Logger() *log.Logger { return log.New(writer{l}, "", 0) }

type writer struct{ log *LineLog }

// Write implements io.Writer.
func (w writer) Write(text []byte) (int, error) {
	w.log.write("", bytes.TrimRight(text, "\n"))
	return len(text), nil
}
