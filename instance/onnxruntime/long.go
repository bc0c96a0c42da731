package onnxruntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ErrTooLong is wrapped by the error for a model of which one run takes more processor time than
// it may. Its text begins with [TooLong].
var ErrTooLong = errors.New(TooLong)

// TooLong begins the text of errors that wrap [ErrTooLong].
const TooLong = "the model takes too long"

// lookEvery is how often the processor time of a run is read.
const lookEvery = 50 * time.Millisecond

// within calls run, and ends its context once this process has used more processor time since
// then than most, 0 for any. Time in which other processes have the cores does not count: used reads the
// processor time. The engine looks at the context between two operators, also those of a loop's body. A run
// that takes longer is an error, even if it does not look and ends well.
func within(most time.Duration, used func() time.Duration, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if most <= 0 {
		return run(ctx)
	}
	began, ended := used(), make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for tick := time.NewTicker(lookEvery); ; {
			select {
			case <-ended:
				tick.Stop()
				return
			case <-tick.C:
				if used()-began > most {
					cancel()
				}
			}
		}
	}()
	err := run(ctx)
	close(ended)
	<-watched
	if ctx.Err() != nil {
		return fmt.Errorf("%w: one run with one request did not end within %v of processor time, which no useful objective allows; use a smaller model, or a longer objective", ErrTooLong, most)
	}
	return err
}

// usedTime is the processor time of all threads of this process.
func usedTime() time.Duration { return clock(unix.CLOCK_PROCESS_CPUTIME_ID) }
