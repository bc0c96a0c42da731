package onnxruntime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A model that takes a minute of processor time a run is refused after what a run may take, or, if one
// operator takes that long, after it. One that only waits for the cores that long is not.
func TestAMinuteARun(t *testing.T) {
	const most, minute = 6 * time.Second, time.Minute
	ends := func(ctx context.Context) error { // Between two operators.
		select {
		case <-time.After(minute):
			return nil
		case <-ctx.Done():
			return errors.New("exiting due to terminate flag")
		}
	}
	oneOperator := func(context.Context) error {
		time.Sleep(minute)
		return nil
	}
	for name, c := range map[string]struct {
		run   func(context.Context) error
		share time.Duration // Of the time that passes, 1/share is processor time.
		most  time.Duration
		takes time.Duration
		long  bool
	}{
		"many operators": {ends, 1, most, most + 2*lookEvery, true},
		"one operator":   {oneOperator, 1, most, minute, true},
		"busy machine":   {ends, 20, most, minute, false},
		"no bound":       {ends, 1, 0, minute, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := within(c.most, func() time.Duration { return time.Since(began) / c.share }, c.run)
			if errors.Is(err, ErrTooLong) != c.long || time.Since(began) > c.takes {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		})
	}
}
