// Package backoff has the pauses between attempts that failed or found nothing yet. [Pause] decides
// how long one lasts, and [Wait] waits for it. It counts no attempts: their caller does.
package backoff

import (
	"context"
	"time"
)

// Pause returns the pause after the n-th failure in a row, counted from 1: first, 2 first, 4 first, …,
// at most longest. first must be above 0.
func Pause(n int, first, longest time.Duration) time.Duration {
	for ; n > 1 && first < longest; n-- {
		first *= 2
	}
	return min(first, longest)
}

// Wait waits for d, and not at all if d is 0 or less. It returns false if ctx ends first, or has ended.
func Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
