package podlogs

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"time"
)

// maxLine is how many bytes of a line are passed on.
const maxLine = 1 << 20

// line is one line that an instance printed.
type line struct {
	time time.Time
	text string
}

// reader takes a log apart into lines.
type reader struct {
	from *bufio.Reader
	last time.Time
}

func newReader(from io.Reader) *reader { return &reader{from: bufio.NewReader(from)} }

// next returns the next line, or its first maxLine bytes. It returns io.EOF after the
// last line.
func (r *reader) next() (line, error) {
	var text strings.Builder
	for {
		part, err := r.from.ReadSlice('\n')
		if room := maxLine - text.Len(); room > 0 {
			text.Write(part[:min(room, len(part))])
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || text.Len() == 0):
			return line{}, err
		}
		return r.parse(strings.TrimRight(text.String(), "\r\n")), nil
	}
}

// parse splits off the time that the kubelet puts before a line. A line without a time,
// such as a message of the kubelet itself, gets the time of the line before.
func (r *reader) parse(text string) line {
	stamp, rest, _ := strings.Cut(text, " ")
	if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
		r.last = at
		return line{at, rest}
	}
	return line{r.last, text}
}
