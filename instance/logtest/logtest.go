// Package logtest keeps what processes and servers print while they are tested.
package logtest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is far above what any of them takes on a machine that is busy.
const patience = time.Minute

// Log keeps what is written to it, by many at once and while it is read. The zero
// value is ready.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is an io.Writer's; it has no errors.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is what has been written until now.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Await polls until a text was written so many times, and ends the test if it is not
// within a minute.
func (l *Log) Await(t testing.TB, text string, times int) {
	t.Helper()
	for end := time.Now().Add(patience); strings.Count(l.String(), text) < times; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log has not %d times %q:\n%s", times, text, l)
		}
	}
}
