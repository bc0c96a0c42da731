package web

import (
	"errors"
	"testing"
	"time"
)

// A client reads slowly from its first gap on: no later part follows it, also if it has read everything by then.
func TestPartsHaveNoGap(t *testing.T) {
	let := make(chan struct{})
	var causes []error
	p := NewParts(func([]byte) error {
		<-let
		return nil
	}, func(cause error) { causes = append(causes, cause) })
	// A large part right after a small one is taken: little waits besides it.
	for _, n := range []int{1, 2 * MaxUnsentParts} {
		if err := p.Take(make([]byte, n)); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if err := p.Take([]byte("x")); !errors.Is(err, errSlowReader) {
		t.Errorf("behind a large part: %v", err)
	}
	close(let)
	for p.unsent.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := p.Take([]byte("y")); !errors.Is(err, errSlowReader) {
		t.Errorf("after a gap: %v", err)
	}
	if n, _ := p.End(); n != 3 || len(causes) != 1 {
		t.Errorf("%d parts, %v", n, causes)
	}
}
