package web

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

// A header that promises a large body takes no memory for it.
func TestPromisedBytesAreNotAllocated(t *testing.T) {
	var asked []int
	s := NewBodyReader(1<<25, time.Minute, 1<<26)
	_, err := s.readSized(readerFunc(func(p []byte) (int, error) {
		asked = append(asked, len(p))
		if len(asked) > 2 {
			return 0, io.ErrUnexpectedEOF
		}
		return len(p), nil
	}), 1<<25)
	want := []int{onTrust, (trustFactor - 1) * onTrust, 1<<24 - trustFactor*onTrust}
	if !errors.Is(err, io.ErrUnexpectedEOF) || fmt.Sprint(asked) != fmt.Sprint(want) {
		t.Errorf("read into %v, %v; want %v", asked, err, want)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
