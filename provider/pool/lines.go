package pool

import (
	"bytes"
	"encoding/json"
	"io"
)

// Lines passes the lines of a log in JSON on to a writer. A line about a pool gets the full names of its members, which
// are what a reader knows.
type Lines struct {
	To io.Writer
	// Members lists the members of a pool by its full name.
	Members func(pool string) []string
}

// field begins the value that names a pool in a line.
var field = []byte(`"function":"` + prefix)

// Write implements [io.Writer].
func (l Lines) Write(line []byte) (int, error) {
	if at := bytes.Index(line, field); at >= 0 {
		from := at + len(field) - len(prefix)
		if length := bytes.IndexByte(line[from:], '"'); length > 0 {
			end := from + length + 1
			if members := l.Members(string(line[from : end-1])); len(members) > 0 {
				names, _ := json.Marshal(members) // Texts cannot fail.
				with := append(append([]byte(nil), line[:end]...), `,"members":`...)
				if _, err := l.To.Write(append(append(with, names...), line[end:]...)); err != nil {
					return 0, err
				}
				return len(line), nil
			}
		}
	}
	return l.To.Write(line)
}
