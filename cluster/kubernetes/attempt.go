package kubernetes

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/faas-infer/faas-infer/backoff"
)

// The pause between two tries doubles from minRetryPause to maxRetryPause.
const (
	minRetryPause = 50 * time.Millisecond
	maxRetryPause = 2 * time.Second
)

// isTransient reports whether the next try may succeed, for example after the API
// server could not be reached. The failed try may still have had its effect.
func isTransient(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // The API server has not answered.
	}
	return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsUnexpectedServerError(err)
}

// attempt calls f until it succeeds, fails for good or ctx ends, and returns f's last
// result.
func attempt(ctx context.Context, f func(context.Context) error) error {
	for n := 1; ; n++ {
		err := f(ctx)
		if err == nil || !isTransient(err) || !backoff.Wait(ctx, backoff.Pause(n, minRetryPause, maxRetryPause)) {
			return err
		}
	}
}
