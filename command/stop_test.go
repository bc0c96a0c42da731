package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// The first signal ends the command's context, the second one that of insistence.
func TestInsistence(t *testing.T) {
	// They come here, too, and none ends this process once nobody else waits for it.
	came := make(chan os.Signal, 1)
	signal.Notify(came, syscall.SIGTERM)
	defer signal.Stop(came)
	insists, release := insistence()
	defer release()
	raise := func() {
		t.Helper()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		// Of two that come before the first one was seen, the kernel tells once.
		case <-came:
		case <-time.After(time.Minute):
			t.Fatal("the signal does not come")
		}
	}
	raise()
	select {
	case <-insists.Done():
		t.Error("one signal insists")
	case <-time.After(50 * time.Millisecond):
	}
	raise()
	select {
	case <-insists.Done():
	case <-time.After(time.Minute):
		t.Fatal("two signals do not")
	}
}

func TestStopContext(t *testing.T) {
	insists, insist := context.WithCancel(t.Context())
	s := &runningProvider{insists: insists}
	long, cancel := s.stopContext(time.Hour, time.Hour)
	defer cancel()
	short, cancelShort := s.stopContext(time.Hour, 0)
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
