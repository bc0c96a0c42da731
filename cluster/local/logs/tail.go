package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// margin is how many extra lines are read of an instance. The first wanted line may have
// no time and inherits it from one of them.
const margin = 100

func (p position) after(q position) bool {
	return p.rotation > q.rotation || p.rotation == q.rotation && p.offset > q.offset
}

// lastLines returns a position at or somewhat before the last n lines of a log, or the
// log's beginning if it has fewer.
func (s *Store) lastLines(path string, n int) (position, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.rotations[path]
	at := position{rotation: now}
	// The end of the last line does not count. A huge n must not overflow.
	wanted := min(n, 1<<40) + margin + 1
	for age := 0; age <= s.Keep; age++ {
		name := path
		if age > 0 {
			name = rotated(path, age)
		}
		offset, found, err := lastEnds(name, wanted)
		if errors.Is(err, fs.ErrNotExist) {
			if age == 0 {
				continue
			}
			break
		}
		if err != nil {
			return at, fmt.Errorf("read log: %w", err)
		}
		at = position{rotation: now - int64(age), offset: offset}
		if wanted -= found; wanted <= 0 {
			break
		}
	}
	return at, nil
}

// lastEnds finds a file's last n line ends and returns the offset behind the first of
// them, and n. If the file has fewer, it returns 0 and their number.
func lastEnds(name string, n int) (offset int64, found int, err error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, 0, err
	}
	buffer := make([]byte, 4*chunk)
	for end := info.Size(); end > 0; {
		start := max(0, end-int64(len(buffer)))
		part := buffer[:end-start]
		if _, err := file.ReadAt(part, start); err != nil {
			return 0, 0, err
		}
		for len(part) > 0 {
			i := bytes.LastIndexByte(part, '\n')
			if i < 0 {
				break
			}
			if found++; found == n {
				return start + int64(i) + 1, found, nil
			}
			part = part[:i]
		}
		end = start
	}
	return 0, found, nil
}
