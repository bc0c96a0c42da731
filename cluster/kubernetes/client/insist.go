package client

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/backoff"
)

// startPause is the time between two tries at the start of a program.
const startPause = time.Second

// Insist calls f until it succeeds or ctx ends, and returns f's last error. It logs each new
// reason once. Use it for what a program needs at its start: the API server may not answer
// yet, know a resource that is just being created, or have taken in the program's rights.
func Insist(ctx context.Context, log zerolog.Logger, f func(ctx context.Context) error) error {
	var last error
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if last != nil && ctx.Err() != nil {
			return last // It says more than that time is up.
		}
		if last == nil || err.Error() != last.Error() {
			log.Warn().Err(err).Msg("the provider cannot start yet; it tries again")
		}
		last = err
		if !backoff.Wait(ctx, startPause) {
			return last
		}
	}
}
