package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// open opens the file once more, as another process would.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for _, c := range []struct {
		first, second Mode
		want          error
	}{
		{Shared, Shared, nil}, {Shared, Exclusive, ErrLocked},
		{Exclusive, Shared, ErrLocked}, {Exclusive, Exclusive, ErrLocked},
	} {
		a, b := open(t, path), open(t, path)
		if err := Try(a, c.first); err != nil {
			t.Fatal(err)
		}
		if err := Try(b, c.second); !errors.Is(err, c.want) {
			t.Errorf("%d after %d: got %v, want %v", c.second, c.first, err, c.want)
		}
		if err := Unlock(a); err != nil {
			t.Fatal(err)
		}
		if err := Try(b, Exclusive); err != nil {
			t.Errorf("after the unlocking: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	if err := Lock(t.Context(), a, Exclusive, 0); err != nil {
		t.Fatal(err)
	}
	if err := Lock(t.Context(), b, Shared, 2*minPoll); !errors.Is(err, ErrLocked) {
		t.Errorf("the wait is over: got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*minPoll)
	defer cancel()
	if err := Lock(ctx, b, Shared, Forever); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ctx has ended: got %v", err)
	}
	time.AfterFunc(2*minPoll, func() { _ = a.Close() })
	if err := Lock(t.Context(), b, Exclusive, Forever); err != nil {
		t.Errorf("the other one has closed the file: %v", err)
	}
	if err := Try(b, Exclusive); err != nil {
		t.Errorf("a lock that this one has: %v", err)
	}
}

func TestClosedFile(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "lock"))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Lock(t.Context(), f, Shared, Forever); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("got %v", err)
	}
}
