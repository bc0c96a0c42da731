package duplex

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestReplay(t *testing.T) {
	text := strings.Repeat("0123456789", 3000)
	r := NewReplay(strings.NewReader(text), nil)
	first, _ := r.Again()
	if _, err := io.ReadFull(first, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		next, ok := r.Again()
		if !ok {
			t.Fatal("a short body is not kept")
		}
		if _, err := first.Read(make([]byte, 1)); err == nil {
			t.Error("an earlier view goes on")
		}
		if got, err := io.ReadAll(next); err != nil || string(got) != text {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		first = next
	}
	last, _ := r.Again()
	r.End()
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("after the end: %v", err)
	}
	if _, ok := r.Again(); ok {
		t.Error("it can be sent again after the end")
	}
}

func TestReplayOfALargeBody(t *testing.T) {
	text := strings.Repeat("x", MaxReplay+1)
	r := NewReplay(strings.NewReader(text), nil)
	first, _ := r.Again()
	if got, err := io.ReadAll(first); err != nil || string(got) != text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, ok := r.Again(); ok {
		t.Error("it is kept")
	}
	held := HeldReplay([]byte(text))
	for range 2 {
		view, ok := held.Again()
		if got, err := io.ReadAll(view); !ok || err != nil || string(got) != text {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}

// A view may still wait for the client when a later one replaces it. The bytes that then
// come are not lost.
func TestReplayOfASlowBody(t *testing.T) {
	reader, writer := io.Pipe()
	r := NewReplay(reader, nil)
	first, _ := r.Again()
	stale := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		_, err := first.Read(make([]byte, 1<<20))
		stale <- err
	}()
	<-begun
	for deadline := time.Now().Add(time.Minute); r.reading.TryLock(); time.Sleep(time.Millisecond) {
		if r.reading.Unlock(); time.Now().After(deadline) {
			t.Fatal("the first view does not read")
		}
	}
	next, _ := r.Again()
	text := strings.Repeat("y", 2*MaxReplay)
	go func() {
		io.WriteString(writer, text)
		writer.Close()
	}()
	if got, err := io.ReadAll(next); err != nil || string(got) != text {
		t.Errorf("%d of %d bytes, %v", len(got), len(text), err)
	}
	if err := <-stale; err == nil {
		t.Error("the superseded view does not know")
	}
}

func TestReplayOfABrokenBody(t *testing.T) {
	r := NewReplay(io.MultiReader(strings.NewReader("some"), brokenReader{}), nil)
	view, _ := r.Again()
	if got, err := io.ReadAll(view); string(got) != "some" || !errors.Is(err, errBroken) {
		t.Errorf("%q, %v", got, err)
	}
	if !errors.Is(r.Failure(), errBroken) {
		t.Errorf("failure %v", r.Failure())
	}
	if (*Replay)(nil).Failure() != nil {
		t.Error("no body has failed")
	}
}

var errBroken = errors.New("broken")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

// What is kept of a body is counted, and a body is not kept if it may not be: it is streamed once. Nothing is
// counted after the end.
func TestKeptBodiesAreCounted(t *testing.T) {
	for _, bound := range []int64{0, 10, 1 << 20} {
		kept := int64(0)
		keep := func(n int64) error {
			if kept+n > bound {
				return errors.New("too much")
			}
			kept += n
			return nil
		}
		text := strings.Repeat("x", 1000)
		r := NewReplay(iotest.OneByteReader(strings.NewReader(text)), keep)
		first, _ := r.Again()
		got, err := io.ReadAll(first)
		if err != nil || string(got) != text || kept != min(bound, 1000) {
			t.Errorf("bound %d: %d bytes are counted, %d read: %v", bound, kept, len(got), err)
		}
		if _, again := r.Again(); again != (bound >= 1000) {
			t.Errorf("bound %d: it can be sent again: %v", bound, again)
		}
	}
	r := NewReplay(strings.NewReader("late"), func(int64) error {
		t.Error("counted after the end")
		return nil
	})
	view, _ := r.Again()
	r.End()
	_, _ = io.ReadAll(view)
}
