package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// margin is how many lines more than wanted are read of an instance: one of them
// tells the time of the first that is wanted, which need not tell its own.
const margin = 100

func (p position) after(q position) bool {
	return p.rotation > q.rotation || p.rotation == q.rotation && p.offset > q.offset
}

// lastLines is where the last n lines of a log begin, or somewhat before, or
// where the log does if it has fewer.
func (s *Store) lastLines(path string, n int) (position, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.rotations[path]
	at := position{rotation: now}
	// The end of the last line does not count; a huge n must not overflow.
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

// lastEnds looks for a file's last n line ends and returns the offset behind the
// first of them, and n; or 0 and how many there are.
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
