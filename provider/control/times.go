package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
)

// ErrUnpredictable is wrapped by Models.Predict where a model's times do not
// follow from its operators: it has to be measured.
var ErrUnpredictable = errors.New("cannot be predicted")

// key names the profile of a model's content for a function's batches. The
// largest batch is part of it because the profile's memory is that batch's.
func (c *Controller) key(hash string, f *provider.Function) string {
	return fmt.Sprintf("%s %s %s b≤%d", hash, c.options.Engine, c.options.Machine, f.Inference.MaxBatch)
}

// stored returns a profile from the store, nil if there is none that is usable.
// Where models are to be measured, a predicted one is not.
func (c *Controller) stored(key string) *profiler.Profile {
	p, err := c.options.Profiles.Profile(key)
	if err != nil || !p.Usable(c.options.Engine, c.options.Machine) || !c.options.Predict && predicted(p) {
		return nil // It is predicted or measured again.
	}
	return p
}

// predicted reports whether any of the profile's times is.
func predicted(p *profiler.Profile) bool {
	return slices.ContainsFunc(p.Measurements, func(m profiler.Measurement) bool { return m.Predicted })
}

// covers reports whether the profile goes on to maxBatch or, on each number of
// threads, to a batch that takes longer than until.
func covers(p *profiler.Profile, maxBatch int, until time.Duration) bool {
	return !slices.ContainsFunc(last(p), func(m profiler.Measurement) bool {
		return m.Batch < maxBatch && m.Median <= float64(until.Microseconds())
	})
}

// last lists the measurement of the largest batch on each number of threads.
func last(p *profiler.Profile) []profiler.Measurement {
	var out []profiler.Measurement
	for _, threads := range p.Threads() {
		var largest profiler.Measurement
		for _, m := range p.Measurements {
			if m.Threads == threads && m.Batch > largest.Batch {
				largest = m
			}
		}
		out = append(out, largest)
	}
	return out
}

// doubtful reports whether a profile says that the objective cannot be met, and
// is only a prediction: the model is measured before it is refused.
func (c *Controller) doubtful(f *provider.Function, p *profiler.Profile) bool {
	return predicted(p) && c.hopeless(f, c.promised(f, p)) != nil
}

// profile returns the model's profile from the store, or else predicts or
// measures it. A batch above one that takes longer than half the SLO is of no use
// (INFless Eq. 4), so larger ones are left out. One model is predicted or
// measured at a time.
func (c *Controller) profile(ctx context.Context, r revision) (prepared string, p *profiler.Profile, err error) {
	hash, err := c.options.Models.Hash(r.file)
	if err != nil {
		return "", nil, err
	}
	key, until := c.key(hash, r.Function), r.Inference.SLO/2
	found := func(p *profiler.Profile) bool {
		return p != nil && covers(p, r.Inference.MaxBatch, until) && !c.doubtful(r.Function, p)
	}
	if p := c.stored(key); found(p) {
		prepared, err := c.ready(ctx, r.file)
		return prepared, p, err
	}
	if !c.leading() && !r.alone {
		return "", nil, errFollowing
	}
	if err := take(ctx, c.measuring); err != nil {
		return "", nil, err
	}
	defer give(c.measuring)
	if p := c.stored(key); p != nil { // Somebody may just have found it out.
		if found(p) {
			prepared, err := c.ready(ctx, r.file)
			return prepared, p, err
		}
		for _, m := range last(p) { // Those who use the stored one go on to.
			until = max(until, time.Duration(m.Median)*time.Microsecond)
		}
	}
	prepared, p, err = c.find(ctx, r, until)
	if err != nil {
		return "", nil, err
	}
	if !c.leading() {
		return prepared, p, nil
	}
	if err := c.options.Profiles.PutProfile(key, p); err != nil {
		// It serves all the same.
		c.options.Logger.Error().Str("function", r.Name).Err(err).Msg("keep profile; a restart will find it out again")
	}
	return prepared, p, nil
}

// find predicts the model's times, or measures them if it is to, or if they
// cannot be predicted.
func (c *Controller) find(ctx context.Context, r revision, until time.Duration) (prepared string, p *profiler.Profile, err error) {
	if c.options.Predict {
		prepared, p, err := c.predict(ctx, r, until)
		if p != nil || ctx.Err() != nil {
			return prepared, p, err
		}
	}
	began := time.Now()
	c.options.Logger.Info().Str("function", r.Name).Msg("measuring the model")
	prepared, p, err = c.options.Models.Measure(ctx, r.file, r.Inference.MaxBatch, until)
	if err != nil {
		return "", nil, err
	}
	c.options.Logger.Info().Str("function", r.Name).Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Msg("measured the model")
	return prepared, p, nil
}

// predict predicts the model's times; without a profile, the model is to be
// measured, and the log says why. err is then of ctx, if any.
func (c *Controller) predict(ctx context.Context, r revision, until time.Duration) (prepared string, p *profiler.Profile, err error) {
	began, log := time.Now(), c.options.Logger.With().Str("function", r.Name).Logger()
	prepared, p, err = c.options.Models.Predict(ctx, r.file, r.Inference.MaxBatch, until)
	switch {
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case errors.Is(err, ErrUnpredictable):
		log.Info().AnErr("why", err).Msg("the model's times do not follow from its operators, it is measured")
		return "", nil, nil
	case err != nil:
		log.Warn().Err(err).Msg("predict the model's times; it is measured instead")
		return "", nil, nil
	case c.doubtful(r.Function, p):
		log.Info().AnErr("why", c.hopeless(r.Function, c.promised(r.Function, p))).Msg("the prediction says that the objective cannot be met, so the model is measured")
		return "", nil, nil
	}
	log.Info().Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Msg("predicted the model's times from its operators")
	return prepared, p, nil
}
