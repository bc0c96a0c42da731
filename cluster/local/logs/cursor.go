package logs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// position is a place in an instance's output. It stays valid while files rotate.
type position struct {
	// rotation is how often the file had been rotated when it held the bytes,
	// counted from the provider's start. Files that were rotated before the start
	// have a rotation below 0.
	rotation int64
	offset   int64
}

// oldest returns where the kept part of a log begins. It skips whole files that
// were last written before since.
func (s *Store) oldest(path string, since time.Time) position {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.rotations[path]
	for age := s.Keep; age > 0; age-- {
		// A rotated copy is younger than its lines.
		if info, err := os.Stat(rotated(path, age)); err == nil && !info.ModTime().Before(since) {
			return position{rotation: now - int64(age)}
		}
	}
	return position{rotation: now}
}

// read reads at a position into p and returns the next position. At the end of the
// log it returns 0 and no error. It skips deleted files.
func (s *Store) read(path string, at position, p []byte) (int, position, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.rotations[path]
	if now-at.rotation > int64(s.Keep) {
		at = position{rotation: now - int64(s.Keep)}
	}
	for ; at.rotation < now; at = (position{rotation: at.rotation + 1}) {
		n, err := readAt(rotated(path, int(now-at.rotation)), &at.offset, p)
		if n > 0 || err != nil {
			return n, at, err
		}
	}
	n, err := readAt(path, &at.offset, p)
	return n, at, err
}

// readAt reads at an offset and advances it. A missing file counts as empty. A file
// that somebody has truncated is read from its beginning.
func readAt(path string, offset *int64, p []byte) (int, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	n, err := file.ReadAt(p, *offset)
	if n == 0 && errors.Is(err, io.EOF) {
		if info, err := file.Stat(); err != nil || info.Size() >= *offset {
			return 0, err
		}
		*offset = 0
		n, err = file.ReadAt(p, 0)
	}
	*offset += int64(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// written returns when a log was written last, the zero time if it is missing.
func (s *Store) written(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime().UTC()
}

// cursor reads one instance's log line by line.
type cursor struct {
	store    *Store
	instance string
	path     string
	at       position
	splitter splitter
	// time is the time of the latest line. A line without a time inherits it.
	time time.Time
	// key is the maximum of all times so far. Lines are merged by it, so lines of
	// one instance keep their order.
	key time.Time
	// head is the next line if ready.
	head  Line
	ready bool
	// quiet counts the polls of a log whose last line has no end yet.
	quiet int
}

// advance makes the next line the head; ready is false at the end of the log. With
// final, the last line needs no line end.
func (c *cursor) advance(final bool) error {
	for {
		if c.time.IsZero() {
			if err := c.findTime(); err != nil {
				return err
			}
		}
		raw, ok := c.splitter.line()
		if ok {
			c.take(raw)
			return nil
		}
		n, err := c.fill()
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if raw, c.ready = c.tail(final); c.ready {
			c.take(raw)
		}
		return nil
	}
}

func (c *cursor) tail(final bool) ([]byte, bool) {
	if !final {
		return nil, false
	}
	return c.splitter.last()
}

func (c *cursor) fill() (int, error) {
	n, at, err := c.store.read(c.path, c.at, c.splitter.room())
	c.at = at
	c.splitter.grown(n)
	return n, err
}

// take makes raw the head.
func (c *cursor) take(raw []byte) {
	at, text, ok := parse(raw)
	if ok {
		c.time = at
	}
	if c.time.After(c.key) {
		c.key = c.time
	}
	c.head, c.ready, c.quiet = Line{Instance: c.instance, Time: c.time, Text: string(text)}, true, 0
}

// findTime sets the time for the first lines of a log: the time of the first line
// that has one, if it is within what has been read, otherwise the file's.
func (c *cursor) findTime() error {
	if len(c.splitter.pending) == 0 {
		if n, err := c.fill(); n == 0 || err != nil {
			return err
		}
	}
	ahead := splitter{pending: c.splitter.pending}
	for raw, ok := ahead.line(); ok; raw, ok = ahead.line() {
		if at, _, ok := parse(raw); ok {
			c.time = at
			return nil
		}
	}
	if c.time = c.store.written(c.path); c.time.IsZero() {
		c.time = time.Unix(0, 0).UTC()
	}
	return nil
}
