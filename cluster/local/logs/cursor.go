package logs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// position is a place in what an instance has printed. Bytes stay at theirs
// while their file is rotated.
type position struct {
	// rotation is how often the file had been rotated while the bytes were in
	// it, counted from the provider's start: below 0 for those before it.
	rotation int64
	offset   int64
}

// oldest is where what is kept of a log begins, less whole files that were last
// written before since.
func (s *Store) oldest(path string, since time.Time) position {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := s.rotations[path]
	for age := s.Keep; age > 0; age-- {
		// A copy is younger than what is in it.
		if info, err := os.Stat(rotated(path, age)); err == nil && !info.ModTime().Before(since) {
			return position{rotation: now - int64(age)}
		}
	}
	return position{rotation: now}
}

// read reads at a position into p and returns where to go on. It returns 0 and
// no error at the end of what there is. Deleted files are passed over.
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

// readAt reads at an offset and moves it on. A file that is absent is empty;
// one that somebody has cut off is read from its beginning.
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

// written is when a log was written last, the zero time if it is absent.
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
	// time is the latest line's, inherited by those that tell none.
	time time.Time
	// key is the latest of all: lines are put in order by it, and those of one
	// instance stay as they came.
	key time.Time
	// head is the next line, if there is one.
	head  Line
	ready bool
	// quiet counts the looks at a log whose last line has no end yet.
	quiet int
}

// advance makes the next line the head; ready is false at the end of what there
// is. With final, that may be a line without end.
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

// findTime finds the time of lines before which no other stands: that of the
// first line that tells one, if it is not far, else the file's.
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
