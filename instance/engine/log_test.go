package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A full log takes nothing more until it is moved aside: lines wait, and are dropped only when
// nobody does that.
func TestLogHasABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	line := strings.Repeat("x", 99) + "\n"
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	synctest.Test(t, func(t *testing.T) {
		l := &boundLog{file: file, limit: 1000}
		print := func(lines int) {
			for range lines {
				if n, err := l.Write([]byte(line)); n != len(line) || err != nil {
					t.Fatal(n, err)
				}
			}
		}
		print(10)
		began := time.Now()
		go func() { // It is moved aside while the next line waits.
			time.Sleep(rotationPatience / 2)
			if err := os.Truncate(path, 0); err != nil {
				t.Error(err)
			}
		}()
		print(1)
		if took := time.Since(began); took < rotationPatience/2 || took > rotationPatience || read() != line {
			t.Errorf("after %v there are %d bytes", took, len(read()))
		}
		print(9)
		began = time.Now()
		print(1000) // Nobody does: only the first one waits.
		if took := time.Since(began); took > rotationPatience+2*rotationPoll || len(read()) != 1000 {
			t.Errorf("after %v there are %d bytes", took, len(read()))
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		print(2)
		if got := read(); !strings.Contains(got, "100000 bytes of output were dropped") || !strings.HasSuffix(got, "\n"+line+line) {
			t.Errorf("it goes on with %q", got)
		}
	})
	if l := (&boundLog{file: file, limit: 10}); os.Truncate(path, 0) == nil {
		if n, err := l.Write([]byte(line)); n != len(line) || err != nil { // Longer than the bound.
			t.Error(n, err)
		}
	}
}
