// Package latency says how long a function's batches take, and whether its objective can
// be met. A Finder finds a model's profile: in the store, by prediction from its
// operators (INFless §3.3), or by measuring. Rules turn an objective and a profile into
// a Plan. Means hold what executions take on average, and Records keep what was seen
// across restarts. Begin with Finder.
package latency

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
)

// Models looks at model files, outside the provider's own process.
type Models interface {
	// Check returns an error that names what is wrong with a model file, or nil. It asks
	// whether the model is known by its Hash; one that is can be read, and is not looked at.
	Check(ctx context.Context, file string, known func(hash string) bool) error
	// Hash identifies a model file's content. It is asked often, so it should
	// not read a file again that has not changed.
	Hash(file string) (string, error)
	// Prepare makes the model ready for this host's instances, once, and
	// returns the directory that they load.
	Prepare(ctx context.Context, file string) (prepared string, err error)
	// Sketch prepares the model and finds its times within seconds, since somebody waits
	// for it: it predicts them if its operators are known, or else measures the model for
	// about a second, and the profile is provisional.
	Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
	// Measure prepares the model and measures it for batches of up to
	// maxBatch that take no longer than until, in the background. It is never asked
	// twice at the same time.
	Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
	// Predict is Measure, but combines the times of the model's operators
	// (INFless §3.3). It wraps ErrUnpredictable where that cannot be done.
	Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
}

// Profiles keeps models' profiles.
type Profiles interface {
	Profile(key string) (*profiler.Profile, error)
	PutProfile(key string, p *profiler.Profile) error
}

// ErrFollowing is why a replica of the provider that does not lead leaves something
// alone.
var ErrFollowing = errors.New("another replica of the provider leads")

// Finder finds models' times. One model is predicted or measured at a time:
// measurements side by side would disturb each other. A new model is sketched meanwhile,
// so that it serves at once.
type Finder struct {
	Models   Models
	Profiles Profiles
	Rules    Rules
	// Predict has times predicted where that can be done; else they are measured.
	Predict bool
	// Engine and Machine are what profiles must be of, as they name them; a profile
	// of another is measured anew.
	Engine, Machine string
	// Leading tells whether this replica finds out what is not known yet.
	Leading func() bool
	Logger  zerolog.Logger
	// sketching, measuring and preparing hold a token while a model is sketched, measured
	// or prepared.
	sketching, measuring, preparing chan struct{}
}

// NewFinder completes a finder.
func NewFinder(f Finder) *Finder {
	f.sketching, f.measuring, f.preparing = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	return &f
}

// Check refuses a model that cannot be read, or one with an [annotation.Error] if it
// cannot meet the objective. A model that has been measured can be read.
func (t *Finder) Check(ctx context.Context, f *provider.Function, file string) error {
	var p *profiler.Profile
	err := t.Models.Check(ctx, file, func(hash string) bool {
		p = t.stored(t.Key(hash, f))
		return p != nil
	})
	if err != nil {
		return err
	}
	if p == nil || predicted(p) {
		return nil // Before it is refused, it is measured.
	}
	if why := t.Rules.Hopeless(f, t.Rules.Promised(f, p)); why != nil {
		return why
	}
	return nil
}

// ErrUnpredictable is wrapped by Models.Predict where a model's times do not
// follow from its operators: it has to be measured.
var ErrUnpredictable = errors.New("cannot be predicted")

// Key names the profile of a model's content for a function's batches. The
// largest batch is part of it because the profile's memory is that batch's.
func (t *Finder) Key(hash string, f *provider.Function) string {
	return fmt.Sprintf("%s %s %s b≤%d", hash, t.Engine, t.Machine, f.Inference.MaxBatch)
}

// stored returns a profile from the store, nil if there is none that is usable.
// Where models are to be measured, a predicted one is not.
func (t *Finder) stored(key string) *profiler.Profile {
	p, err := t.Profiles.Profile(key)
	if err != nil || !p.Usable(t.Engine, t.Machine) || !t.Predict && predicted(p) {
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
func (t *Finder) doubtful(f *provider.Function, p *profiler.Profile) bool {
	return predicted(p) && t.Rules.Hopeless(f, t.Rules.Promised(f, p)) != nil
}

// serves reports whether a profile will do for a function. A provisional one does until
// [Finder.Refine] has found a fuller one; a batch above one that takes longer than half
// the SLO is of no use (INFless Eq. 4), so larger ones are left out.
func (t *Finder) serves(f *provider.Function, p *profiler.Profile) bool {
	switch {
	case p == nil:
		return false
	case p.Provisional:
		return t.Rules.Hopeless(f, t.Rules.Promised(f, p)) == nil
	}
	return covers(p, f.Inference.MaxBatch, f.Inference.SLO/2) && !t.doubtful(f, p)
}

// Profile returns the model's profile from the store, or else a sketch of it, or else
// predicts or measures it. A replica that does not lead finds nothing out, unless it is
// alone. Of a provisional profile, Refine finds the fuller one.
func (t *Finder) Profile(ctx context.Context, f *provider.Function, file string, alone bool) (prepared string, p *profiler.Profile, err error) {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return "", nil, err
	}
	key := t.Key(hash, f)
	if p = t.stored(key); t.serves(f, p) {
		prepared, err = t.ready(ctx, file)
		return prepared, p, err
	}
	if !t.Leading() && !alone {
		return "", nil, ErrFollowing
	}
	if t.Predict {
		if prepared, p, err = t.begin(ctx, f, file, key); p != nil || err != nil {
			return prepared, p, err
		}
	}
	return t.whole(ctx, f, file, key)
}

// begin is times to serve with at once, one model's after the other's; without a profile,
// there are none.
func (t *Finder) begin(ctx context.Context, f *provider.Function, file, key string) (prepared string, p *profiler.Profile, err error) {
	if err := take(ctx, t.sketching); err != nil {
		return "", nil, err
	}
	defer give(t.sketching)
	if p := t.stored(key); t.serves(f, p) { // Somebody has just found it out.
		prepared, err := t.ready(ctx, file)
		return prepared, p, err
	}
	prepared, p = t.sketch(ctx, f, file)
	if !t.serves(f, p) {
		return "", nil, ctx.Err()
	}
	t.keep(f, key, p)
	return prepared, p, nil
}

// Refine finds the profile that takes a provisional one's place. A replica that does not
// lead waits for the leader's.
func (t *Finder) Refine(ctx context.Context, f *provider.Function, file string) (prepared string, p *profiler.Profile, err error) {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return "", nil, err
	}
	key := t.Key(hash, f)
	if p := t.stored(key); p != nil && !p.Provisional && t.serves(f, p) {
		prepared, err := t.ready(ctx, file)
		return prepared, p, err
	}
	if !t.Leading() {
		return "", nil, ErrFollowing
	}
	return t.whole(ctx, f, file, key)
}

// whole returns the whole profile from the store, or else predicts or measures it.
func (t *Finder) whole(ctx context.Context, f *provider.Function, file, key string) (prepared string, p *profiler.Profile, err error) {
	if err := take(ctx, t.measuring); err != nil {
		return "", nil, err
	}
	defer give(t.measuring)
	until := f.Inference.SLO / 2
	if p := t.stored(key); p != nil && !p.Provisional { // Somebody may just have found it out.
		if t.serves(f, p) {
			prepared, err := t.ready(ctx, file)
			return prepared, p, err
		}
		for _, m := range last(p) { // Those who use the stored one go on to.
			until = max(until, time.Duration(m.Median)*time.Microsecond)
		}
	}
	prepared, p, err = t.find(ctx, f, file, until)
	if err != nil {
		return "", nil, err
	}
	t.keep(f, key, p)
	return prepared, p, nil
}

// keep stores a profile if this replica leads.
func (t *Finder) keep(f *provider.Function, key string, p *profiler.Profile) {
	if !t.Leading() {
		return
	}
	if err := t.Profiles.PutProfile(key, p); err != nil {
		// It serves all the same.
		t.Logger.Error().Str("function", f.Name).Err(err).Msg("keep profile; a restart will find it out again")
	}
}

// sketch finds times to begin with; nil where that fails, and then the model is looked at
// thoroughly first.
func (t *Finder) sketch(ctx context.Context, f *provider.Function, file string) (prepared string, p *profiler.Profile) {
	began, log := time.Now(), t.Logger.With().Str("function", f.Name).Logger()
	prepared, p, err := t.Models.Sketch(ctx, file, f.Inference.MaxBatch, f.Inference.SLO/2)
	if err != nil {
		if ctx.Err() == nil {
			log.Info().AnErr("why", err).Msg("the model could not be sketched")
		}
		return "", nil
	}
	log.Info().Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Bool("provisional", p.Provisional).Msg("sketched the model's times")
	return prepared, p
}

// find predicts the model's times, or measures them if it is to, or if they
// cannot be predicted.
func (t *Finder) find(ctx context.Context, f *provider.Function, file string, until time.Duration) (prepared string, p *profiler.Profile, err error) {
	if t.Predict {
		prepared, p, err := t.predict(ctx, f, file, until)
		if p != nil || ctx.Err() != nil {
			return prepared, p, err
		}
	}
	began := time.Now()
	t.Logger.Info().Str("function", f.Name).Msg("measuring the model")
	prepared, p, err = t.Models.Measure(ctx, file, f.Inference.MaxBatch, until)
	if err != nil {
		return "", nil, err
	}
	t.Logger.Info().Str("function", f.Name).Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Msg("measured the model")
	return prepared, p, nil
}

// predict predicts the model's times; without a profile, the model is to be
// measured, and the log says why. err is then of ctx, if any.
func (t *Finder) predict(ctx context.Context, f *provider.Function, file string, until time.Duration) (prepared string, p *profiler.Profile, err error) {
	began, log := time.Now(), t.Logger.With().Str("function", f.Name).Logger()
	prepared, p, err = t.Models.Predict(ctx, file, f.Inference.MaxBatch, until)
	switch {
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case errors.Is(err, ErrUnpredictable):
		log.Info().AnErr("why", err).Msg("the model's times do not follow from its operators, it is measured")
		return "", nil, nil
	case err != nil:
		log.Warn().Err(err).Msg("predict the model's times; it is measured instead")
		return "", nil, nil
	case t.doubtful(f, p):
		log.Info().AnErr("why", t.Rules.Hopeless(f, t.Rules.Promised(f, p))).Msg("the prediction says that the objective cannot be met, so the model is measured")
		return "", nil, nil
	}
	log.Info().Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Msg("predicted the model's times from its operators")
	return prepared, p, nil
}

// ready prepares a model that need not be measured.
func (t *Finder) ready(ctx context.Context, file string) (prepared string, err error) {
	if err := take(ctx, t.preparing); err != nil {
		return "", err
	}
	defer give(t.preparing)
	return t.Models.Prepare(ctx, file)
}

// take takes the token, unless ctx ends first; give gives it back.
func take(ctx context.Context, token chan struct{}) error {
	select {
	case token <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func give(token chan struct{}) { <-token }
