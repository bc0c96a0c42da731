// Package logtest keeps the output of processes and servers under test. It does not
// interpret the lines. Begin with [Log].
package logtest

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long Await waits: far longer than any test needs on a busy machine.
const patience = time.Minute

// Log keeps all that is written to it. It is safe for concurrent use. The zero value is
// ready.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer. It never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that has been written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Await polls until the log has the text the given number of times. It fails the test
// after a minute.
func (l *Log) Await(t testing.TB, text string, times int) {
	t.Helper()
	for end := time.Now().Add(patience); strings.Count(l.String(), text) < times; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log does not have %q %d times after %v:\n%s", text, times, patience, l)
		}
	}
}
