package kubernetes

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	shortest = 50 * time.Millisecond
	longest  = 2 * time.Second
)

// retryPause is how long to wait after the n-th failure in a row: 50 ms, 100 ms, …, at
// most 2 s.
func retryPause(n int) time.Duration { return min(shortest<<min(n-1, 10), longest) }

// isTransient reports whether a failure may be gone at the next try, as when the API
// server cannot be reached. Whether it did what it was asked is then not known.
func isTransient(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // It has not answered.
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsUnexpectedServerError(err)
}

// attempt calls f until it succeeds, fails for good or a context ends, and returns what
// f returned last.
func attempt(ctx context.Context, f func(context.Context) error) error {
	for n := 1; ; n++ {
		err := f(ctx)
		if err == nil || !isTransient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryPause(n)):
		}
	}
}
