package command

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// The first signal is for the command's context; the second one tells that the
// user insists.
func TestInsistence(t *testing.T) {
	insists, release := insistence()
	defer release()
	raise := func() {
		t.Helper()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	raise()
	select {
	case <-insists.Done():
		t.Error("one signal insists")
	case <-time.After(50 * time.Millisecond):
	}
	// Of two that come before the first one was seen, the kernel tells once.
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for end := time.After(time.Minute); ; {
		raise()
		select {
		case <-insists.Done():
			return
		case <-again.C:
		case <-end:
			t.Fatal("many signals do not")
		}
	}
}

func TestPatience(t *testing.T) {
	insists, insist := context.WithCancel(t.Context())
	s := &runningProvider{insists: insists}
	long, cancel := s.patience(time.Hour, time.Hour)
	defer cancel()
	short, cancelShort := s.patience(time.Hour, 0)
	defer cancelShort()
	if long.Err() != nil || short.Err() != nil {
		t.Error("patience ended before anybody insisted")
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
