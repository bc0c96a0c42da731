package backoff

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPausesDouble(t *testing.T) {
	for n, want := range map[int]time.Duration{-1: 3, 0: 3, 1: 3, 2: 6, 3: 12, 4: 24, 5: 40, 1 << 40: 40} {
		if got := Pause(n, 3, 40); got != want {
			t.Errorf("after %d failures the pause is %v, want %v", n, got, want)
		}
	}
	if got := Pause(5, time.Hour, time.Minute); got != time.Minute {
		t.Errorf("a first pause above the longest is %v", got)
	}
}

func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if !Wait(ctx, 0) || !Wait(ctx, -time.Second) || !Wait(ctx, time.Second) {
			t.Error("a pause is cut off")
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("pauses of a second together took %v", took)
		}
		if Wait(ctx, time.Hour) || Wait(ctx, 0) {
			t.Error("nobody noticed the end of the context")
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("a wait ended after %v", took)
		}
	})
}
