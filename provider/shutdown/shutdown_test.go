package shutdown

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The first signal ends the command's context, the second one that of Insistence. A closed terminal
// never insists, however often it sends its signal.
func TestInsistence(t *testing.T) {
	for _, first := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(first.String(), func(t *testing.T) { testInsistence(t, first) })
	}
}

func testInsistence(t *testing.T, first syscall.Signal) {
	// They come here, too, and none ends this process once nobody else waits for it.
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(came)
	insists, release := Insistence()
	defer release()
	raise := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		select {
		// Of two that come before the first one was seen, the kernel tells once.
		case <-came:
		case <-time.After(time.Minute):
			t.Fatal("the signal does not come")
		}
	}
	raise(first)
	if first == syscall.SIGHUP {
		raise(first)
	}
	select {
	case <-insists.Done():
		t.Errorf("%v insists", first)
	case <-time.After(50 * time.Millisecond):
	}
	raise(syscall.SIGTERM)
	select {
	case <-insists.Done():
	case <-time.After(time.Minute):
		t.Fatal("two signals do not")
	}
}

func TestContext(t *testing.T) {
	insists, insist := context.WithCancel(t.Context())
	s := Steps{Insists: insists}
	long, cancel := s.Context(time.Hour, time.Hour)
	defer cancel()
	short, cancelShort := s.Context(time.Hour, 0)
	defer cancelShort()
	if long.Err() != nil || short.Err() != nil {
		t.Error("the context ended before anybody insisted")
	}
	insist()
	select {
	case <-short.Done():
	case <-time.After(time.Minute):
		t.Error("insisting does not end it")
	}
	if long.Err() != nil {
		t.Error("it ends before what was granted all the same")
	}
}

// A stage that does not heed its limit is left behind.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Steps{Insists: t.Context()}
		began, release := time.Now(), make(chan struct{})
		err := s.Within("waiting", time.Minute, 0, func(context.Context) error { <-release; return nil })
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "waiting took too long") || took != time.Minute+Lag {
			t.Errorf("%v after %v", err, took)
		}
		close(release)
		if err := s.Within("failing", time.Minute, 0, func(context.Context) error { return fs.ErrExist }); !errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
	})
}
