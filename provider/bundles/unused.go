package bundles

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/control"
	"github.com/faas-infer/faas-infer/provider/store"
)

const (
	// UnusedFor is how long variants and plans that the provider has made are kept after their last use:
	// making them takes minutes, and a function may come back.
	UnusedFor = time.Hour
	// tidyPeriod is the time between two looks for unused ones.
	tidyPeriod = 10 * time.Minute
)

// BeginTidying removes unused variants and plans at once and every tidyPeriod, in the background, until
// Close. functions lists the stored functions, and instances the running instances: after a restart
// both are there before any function is restored.
func (r *Registrar) BeginTidying(functions func(namespace string) ([]store.Function, error),
	instances func(context.Context) ([]cluster.Instance, error)) {
	r.Begin(func(ctx context.Context) {
		TidyEvery(ctx, r.log, func() (removed []string, err error) {
			running, err := instances(ctx)
			if err != nil {
				return nil, err
			}
			stored, err := functions("")
			if err != nil {
				return nil, err
			}
			var images []string
			for _, f := range stored {
				images = append(images, f.Deployment.Image) // Of a model from a URI no variants are made.
			}
			now := time.Now()
			removed, err = r.variants.Tidy(now, images, running)
			plans, failed := r.cutter.Tidy(now, stored, running, func(f *provider.Function) ([]control.Model, error) { return r.uncut(ctx, f) })
			err = errors.Join(err, failed)
			if r.Downloads != nil {
				freed, failed := r.Downloads.Tidy(now)
				if err = errors.Join(err, failed); freed > 0 {
					r.log.Info().Int64("bytes", freed).Msg("evicted downloaded models that no function uses")
				}
			}
			return append(removed, plans...), err
		})
	})
}

// TidyEvery looks at once and every tidyPeriod until ctx ends, and logs what was removed.
func TidyEvery(ctx context.Context, log zerolog.Logger, look func() (removed []string, err error)) {
	tick := time.Tick(tidyPeriod)
	for {
		removed, err := look()
		if err != nil && ctx.Err() == nil {
			log.Warn().Err(err).Msg("cannot remove all unused variants and parts of models")
		}
		if len(removed) > 0 {
			log.Info().Strs("directories", removed).Msg("removed variants or parts of models that nothing has used for an hour")
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}
