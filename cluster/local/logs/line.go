package logs

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Line is one line that an instance printed.
type Line struct {
	// Instance is the instance's id.
	Instance string
	// Time is when it was printed, in UTC: the time in the line itself, or that of
	// the line before.
	Time time.Time
	// Text is the line without its end and without the time at its beginning. A
	// line of JSON stays unchanged.
	Text string
}

// Lines are cut into pieces of at most maxLine bytes. chunk is how many bytes are read
// of a file at a time.
const (
	maxLine = 64 << 10
	chunk   = 16 << 10
)

// parse splits a line "TIME TEXT", with TIME in RFC 3339, or reads the "time" of a
// JSON object. For any other line, ok is false and the whole line is text.
func parse(line []byte) (at time.Time, text []byte, ok bool) {
	if bytes.HasPrefix(line, []byte{'{'}) {
		at, ok = timeInJSON(line)
		return at, line, ok
	}
	stamp, text, found := bytes.Cut(line, []byte{' '})
	// This rules out most lines without a time at little cost.
	const minStamp = len("2006-01-02T15:04:05Z")
	if len(stamp) < minStamp || stamp[4] != '-' || stamp[10] != 'T' {
		return time.Time{}, line, false
	}
	if at, ok = parseTime(string(stamp)); !ok {
		return time.Time{}, line, false
	}
	if !found {
		text = nil
	}
	return at, text, true
}

func timeInJSON(line []byte) (time.Time, bool) {
	if !bytes.Contains(line, []byte(`"time"`)) {
		return time.Time{}, false
	}
	var object struct {
		Time string `json:"time"`
	}
	if json.Unmarshal(line, &object) != nil {
		return time.Time{}, false
	}
	return parseTime(object.Time)
}

// parseTime reads a time in RFC 3339. It refuses years outside 1 to 9999, which JSON
// cannot represent.
func parseTime(text string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339Nano, text)
	at = at.UTC()
	if err != nil || at.Year() < 1 || at.Year() > 9999 {
		return time.Time{}, false
	}
	return at, true
}

// splitter cuts the bytes of a log into lines.
type splitter struct {
	// pending has not been returned yet. Its first scanned bytes contain no line
	// end.
	pending []byte
	scanned int
}

// room returns where to put the next bytes. Call grown afterwards.
func (s *splitter) room() []byte {
	n := len(s.pending)
	if cap(s.pending)-n < chunk {
		larger := make([]byte, n, n+2*chunk)
		copy(larger, s.pending)
		s.pending = larger
	}
	return s.pending[n : n+chunk]
}

// grown adds the first n bytes of room.
func (s *splitter) grown(n int) { s.pending = s.pending[:len(s.pending)+n] }

// line returns the next line without its end, or a piece of a line that is too long;
// false if there is none yet.
func (s *splitter) line() ([]byte, bool) {
	if i := bytes.IndexByte(s.pending[s.scanned:], '\n'); i >= 0 {
		n := min(s.scanned+i, maxLine)
		if n < s.scanned+i {
			return s.piece(), true
		}
		line := s.pending[:n]
		s.pending, s.scanned = s.pending[n+1:], 0
		return bytes.TrimSuffix(line, []byte{'\r'}), true
	}
	if len(s.pending) > maxLine {
		return s.piece(), true
	}
	s.scanned = len(s.pending)
	return nil, false
}

// piece cuts off at most maxLine bytes of a long line, between two characters.
func (s *splitter) piece() []byte {
	n := maxLine
	for n > maxLine-utf8.UTFMax && !utf8.RuneStart(s.pending[n]) {
		n--
	}
	piece := s.pending[:n]
	s.pending, s.scanned = s.pending[n:], 0
	return piece
}

// last returns the pending bytes without a line end as a line; false if there are none.
func (s *splitter) last() ([]byte, bool) {
	line := s.pending
	s.pending, s.scanned = nil, 0
	return line, len(line) > 0
}
