package logs

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	const at = "2026-11-21T12:00:00.5Z"
	for _, c := range []struct {
		line, text string
		stamped    bool
	}{
		{at + " hello world", "hello world", true},
		{"2026-11-21T13:00:00.5+01:00 hello", "hello", true},
		{at + "  indented", " indented", true},
		{at + " ", "", true},
		{at, "", true},
		{at + "\thello", at + "\thello", false},
		{"", "", false},
		{" ", " ", false},
		{"hello world", "hello world", false},
		{"2026-11-21 12:00:00 hello", "2026-11-21 12:00:00 hello", false},
		{"2026-13-41T12:00:00.5Z hello", "2026-13-41T12:00:00.5Z hello", false},
		{"9999-12-31T23:59:59-12:00 next year", "9999-12-31T23:59:59-12:00 next year", false},
		{`{"level":"info","time":"` + at + `","message":"x"}`, `{"level":"info","time":"` + at + `","message":"x"}`, true},
		{`{"message":"\"time\":\"` + at + `\""}`, `{"message":"\"time\":\"` + at + `\""}`, false},
		{`{"time":1795262400}`, `{"time":1795262400}`, false},
		{`{"time":"` + at + `"`, `{"time":"` + at + `"`, false},
		{`{"inner":{"time":"` + at + `"}}`, `{"inner":{"time":"` + at + `"}}`, false},
	} {
		got, text, ok := parse([]byte(c.line))
		if string(text) != c.text || ok != c.stamped || ok && !got.Equal(noon.Add(time.Second/2)) {
			t.Errorf("parse(%q) = %v, %q, %v", c.line, got, text, ok)
		}
	}
}

// Any output can be shown: no byte is lost, pieces are bounded, and times fit into JSON.
func FuzzLines(f *testing.F) {
	f.Add([]byte("2026-11-21T12:00:00.5Z hello\n\nworld"), uint8(3))
	f.Add([]byte(`{"time":"2026-11-21T12:00:00Z"}`+"\r\n"), uint8(0))
	f.Add([]byte("0000-01-01T00:00:00+23:59 x\n9999-12-31T23:59:59-23:59 y\n"), uint8(1))
	f.Add(bytes.Repeat([]byte("\xbf\xbf\xbf\xbf\xbf"), 3), uint8(200))
	f.Fuzz(func(t *testing.T, data []byte, repeat uint8) {
		data = bytes.Repeat(data, 1+int(repeat))
		var s splitter
		var lines [][]byte
		for rest := data; ; {
			line, ok := s.line()
			if ok {
				lines = append(lines, bytes.Clone(line))
				continue
			}
			n := copy(s.room(), rest)
			s.grown(n)
			if rest = rest[n:]; n == 0 {
				break
			}
		}
		if line, ok := s.last(); ok {
			lines = append(lines, line)
		}
		plain := func(b []byte) string { return strings.NewReplacer("\n", "", "\r", "").Replace(string(b)) }
		if got := plain(bytes.Join(lines, nil)); got != plain(data) {
			t.Errorf("%q became %q", data, lines)
		}
		for _, line := range lines {
			at, text, ok := parse(line)
			if len(text) > maxLine || !bytes.HasSuffix(line, text) || utf8.Valid(data) && !utf8.Valid(text) {
				t.Errorf("parse(%q) = %q", line, text)
			}
			if _, err := json.Marshal(at); ok && err != nil {
				t.Errorf("parse(%q) = %v: %v", line, at, err)
			}
		}
	})
}
