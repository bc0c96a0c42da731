// Package latency says how long a function's batches take, and whether the function can meet
// its objective. It does not measure models itself, and decides nothing about instances. Begin
// with Finder, which finds a model's profile: in the store, by prediction from its operators
// (INFless §3.3), or by measuring. Rules turn an objective and a profile into a Plan, Means
// hold the mean times of executions, and Records keep corrections across restarts.
package latency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// Models reads, measures and prepares model files, outside the provider's own process.
type Models interface {
	// Check returns an error that names what is wrong with a model file, or nil. If known
	// says that the model's hash is known, the model is readable and Check does not read it.
	Check(ctx context.Context, file string, known func(hash string) bool) error
	// Hash identifies a model file's content. It is called often, so it must not read an
	// unchanged file again.
	Hash(file string) (string, error)
	// Bytes is the size of a model file and its weights in other files, 0 if it cannot be read.
	Bytes(file string) int64
	// Prepare makes the model ready for this host's instances, once, and returns the
	// directory that they load.
	Prepare(ctx context.Context, file string) (prepared string, err error)
	// Sketch prepares the model and finds its times within seconds, since requests wait
	// for it. It predicts them if the model's operators are known. Otherwise it measures
	// the model for about a second and returns a provisional profile.
	Sketch(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
	// Measure prepares the model and measures it at low priority, for batches of up to
	// maxBatch that take no longer than until. Calls never overlap.
	Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
	// Predict is Measure, but combines the times of the model's operators (INFless §3.3).
	// Its error wraps ErrUnpredictable if the model's times do not follow from them.
	Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
}

// Assumer is implemented by Models that know the times of some models before they run.
type Assumer interface {
	// Assume links the model and returns a provisional profile that follows from its operators' work, within a tenth
	// of a second. It runs nothing. The error is [ErrNotAssumed] or says what failed; the model is sketched then.
	Assume(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
}

// ErrNotAssumed says that a model's times are not to be assumed.
var ErrNotAssumed = errors.New("the model's times cannot be assumed")

// Sizes say with which sizes a model's free dimensions are prepared and measured, as a deployment
// states them, and what that may take.
type Sizes struct {
	// Shapes are the usual sizes and Max the largest, for tensor.ParseShapes. Image is the form
	// of images, for model.ParseImageForm, whose size the only image of a model has without
	// Shapes. Each is "" if the deployment does not say.
	Shapes, Max, Image string
	// Objective is the function's. Of a model that takes far longer, nothing more is measured.
	Objective time.Duration
	// Memory is what an instance may take in bytes, 0 if the deployment does not say.
	Memory int64
	// Tokens is the maximum number of tokens of a text, 0 if the model takes none.
	Tokens int
}

// SizesOf are the sizes that a function's deployment states, or that a request has taught.
func SizesOf(f *provider.Function) Sizes {
	return Sizes{
		Shapes: cmp.Or(f.Inference.Shapes, f.Learnt), Max: f.Inference.MaxShapes, Image: f.Inference.Image,
		Objective: f.Inference.SLO, Memory: f.Inference.Limits.Memory, Tokens: f.MaxTokens,
	}
}

// Key tells the sizes apart from which other times follow. It is "" for those that are assumed
// of every model, with which profiles were stored before there were any sizes.
func (s Sizes) Key() (key string) {
	if s.Shapes != "" {
		key = s.Shapes
	} else if form, err := model.ParseImageForm(s.Image); err == nil && (form.Width != assumedSide || form.Height != assumedSide) {
		key = fmt.Sprintf("%dx%d", form.Width, form.Height)
	}
	if s.Max != "" {
		key += " ≤" + s.Max
	}
	if s.Tokens > 0 {
		key += fmt.Sprintf(" ≤%d tokens", s.Tokens)
	}
	return key
}

// assumedSide is the size of an image in pixels for which a model is profiled without sizes.
const assumedSide = 224

// Sized is implemented by Models that prepare and measure models with given sizes.
type Sized interface {
	// Sized returns Models whose methods work with these sizes.
	Sized(Sizes) Models
}

// models are the Models for a function's sizes.
func (t *Finder) models(f *provider.Function) Models {
	if sized, ok := t.Models.(Sized); ok && SizesOf(f) != (Sizes{}) {
		return sized.Sized(SizesOf(f))
	}
	return t.Models
}

// Profiles stores models' profiles.
type Profiles interface {
	Profile(key string) (*profiler.Profile, error)
	PutProfile(key string, p *profiler.Profile) error
}

// ErrFollowing says that this replica leaves a task to the leader.
var ErrFollowing = errors.New("another replica of the provider leads")

// ErrStored is wrapped by a reason against a model that the leader has stored. It may pass.
var ErrStored = errors.New("the leader found")

// Finder finds models' times. It predicts or measures one model at a time, the smallest first, since
// parallel measurements would disturb each other; one that takes long goes on beside the next.
// Meanwhile it may sketch a new model, which can then serve at once.
type Finder struct {
	Models   Models
	Profiles Profiles
	Rules    Rules
	// Devices may be nil: then no model runs on a GPU.
	Devices Devices
	// Predict makes the Finder predict times. It measures a model that it cannot predict, or
	// any model if Predict is false.
	Predict bool
	// Longest and LongestOn say that predicted times, on the CPU and on GPUs, must be those of
	// the longest path through the operators, and otherwise the sum. The Finder predicts a model
	// again if its profile has the other.
	Longest, LongestOn bool
	// Engine is the name that a profile must carry; Machine is this machine's. A replica that
	// leads finds the times of its own machine even if those of another one serve meanwhile.
	Engine, Machine string
	// EngineOn is the name of a profile on a GPU, "" for Engine's and "cuda".
	EngineOn string
	// Pace converts the times of other machines; nil for not at all.
	Pace Pace
	// Leading reports whether this replica leads, and so predicts and measures models.
	Leading func() bool
	Logger  zerolog.Logger
	// Cores is how many cores this machine has, 0 for those of this process.
	Cores int
	// sketching, measuring, preparing and dividing are where sketches, measurements, preparations
	// and divisions take turns.
	sketching, measuring, preparing, dividing *line
	// sketched has the directories of models that were sketched, by key. One is gone once its model is prepared.
	sketched *sync.Map
	// trial finds the times on GPUs, nil for Devices.
	trial Trial
}

// NewFinder returns f, ready to use.
func NewFinder(f Finder) *Finder {
	cores := cmp.Or(f.Cores, runtime.NumCPU())
	// A sketch and a preparation take one or two cores, a measurement all.
	few, spare := max(1, cores/4), max(1, cores/2)
	f.sketching = &line{doing: "being sketched", lanes: few, spare: spare}
	f.measuring = &line{doing: "being measured", lanes: 1, spare: spare, overtime: measuringOvertime}
	f.preparing = &line{doing: "being prepared", lanes: few, spare: spare}
	f.dividing = &line{doing: "being divided", lanes: 1, spare: spare}
	f.sketched = new(sync.Map)
	return &f
}

// Check returns an error for a model that cannot be read. For a measured model that cannot meet
// the objective it returns an [annotation.Error].
func (t *Finder) Check(ctx context.Context, f *provider.Function, file string) error {
	refused := t.refuseDevice(f, file)
	if refused != nil && !t.mayCome(f, file) {
		return refused
	}
	var p *profiler.Profile
	var missing []string
	err := t.models(f).Check(ctx, file, func(hash string) bool {
		p = t.stored(t.Key(hash, f))
		known := p != nil
		p, missing = t.join(f, hash, file, p)
		return known
	})
	if err != nil {
		return err
	}
	if p == nil || len(missing) > 0 || predicted(p) || refused != nil {
		return nil // A model is refused only after it was measured.
	}
	if why := t.Rules.Hopeless(f, t.Rules.Promised(f, p)); why != nil {
		return why
	}
	return nil
}

// Promised lists the candidates of a model by its stored profile; none if it has none.
func (t *Finder) Promised(f *provider.Function, file string) []capacity.Candidate {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return nil
	}
	p, _ := t.join(f, hash, file, t.known(context.Background(), hash, f))
	if p == nil {
		return nil
	}
	return t.Rules.Promised(f, p)
}

// ErrUnpredictable is wrapped by errors of Models.Predict if a model's times do not follow from
// its operators. The model must be measured then.
var ErrUnpredictable = errors.New("cannot be predicted")

// ErrPermanent is what [Permanent] errors are.
var ErrPermanent = errors.New("another try would fail, too")

// Permanent returns an error of Models that wraps err and is ErrPermanent: the model is not
// prepared or measured again until it has changed or is deployed again.
func Permanent(err error) error { return permanent{err} }

type permanent struct{ error }

// Is implements errors.Is.
func (permanent) Is(target error) bool { return target == ErrPermanent }

// Unwrap implements errors.Unwrap.
func (p permanent) Unwrap() error { return p.error }

// ErrNoSizes is wrapped by errors of Models if the model runs with none of the sizes that were
// tried for its free dimensions. Trying again changes nothing; the deployment must state sizes, or a
// request must teach them ([Finder.Learn]).
var ErrNoSizes = errors.New("no sizes found")

// Key returns the store's key of a model's profile for a function. It contains the largest
// batch, since the profile's memory is that of this batch, and the sizes that the deployment
// states.
func (t *Finder) Key(hash string, f *provider.Function) string {
	return withSizes(fmt.Sprintf("%s %s %s b≤%d", hash, t.Engine, t.Machine, f.Inference.MaxBatch), f)
}

// withSizes adds a function's sizes to a key, if they make a difference.
func withSizes(key string, f *provider.Function) string {
	if sizes := SizesOf(f).Key(); sizes != "" {
		return key + " " + sizes
	}
	return key
}

// stored returns a usable profile from the store, nil if there is none. A predicted profile is
// not usable if Predict is false.
func (t *Finder) stored(key string) *profiler.Profile {
	p, err := t.Profiles.Profile(key)
	if err != nil || !p.Usable(t.Engine, t.Machine) || predicted(p) && (!t.Predict || p.Longest != t.Longest) {
		return nil // The model is predicted or measured again.
	}
	return p
}

// predicted reports whether any of the profile's times is predicted.
func predicted(p *profiler.Profile) bool {
	return slices.ContainsFunc(p.Measurements, func(m profiler.Measurement) bool { return m.Predicted })
}

// covers reports whether the profile, for each number of threads and share of a GPU, reaches
// maxBatch or a batch that takes longer than until. A model that takes one request an execution
// has no larger batch.
func covers(p *profiler.Profile, maxBatch int, until time.Duration) bool {
	if p.Unbatched != "" {
		return true
	}
	return !slices.ContainsFunc(largestBatches(p), func(m profiler.Measurement) bool {
		return m.Batch < maxBatch && m.Median <= float64(until.Microseconds())
	})
}

// largestBatches lists the measurement of the largest batch for each number of threads and
// share of a GPU.
func largestBatches(p *profiler.Profile) (out []profiler.Measurement) {
	for _, m := range p.Measurements {
		i := slices.IndexFunc(out, func(o profiler.Measurement) bool { return o.Threads == m.Threads && o.GPU == m.GPU })
		switch {
		case i < 0:
			out = append(out, m)
		case m.Batch > out[i].Batch:
			out[i] = m
		}
	}
	return out
}

// doubtful reports whether a profile says that the objective cannot be met but is only a
// prediction. Such a model must be measured before it is refused.
func (t *Finder) doubtful(f *provider.Function, p *profiler.Profile) bool {
	return predicted(p) && t.Rules.Hopeless(f, t.Rules.Promised(f, p)) != nil
}

// serves reports whether a profile is good enough to serve a function with. A provisional one is,
// if it meets the objective, until [Finder.Refine] finds a full one. A full one must reach the
// first batch that takes longer than half the SLO: larger batches are useless (INFless Eq. 4).
func (t *Finder) serves(f *provider.Function, p *profiler.Profile) bool {
	switch {
	case p == nil:
		return false
	case p.Provisional:
		return t.Rules.Hopeless(f, t.Rules.Promised(f, p)) == nil
	}
	return covers(p, f.Inference.MaxBatch, f.Inference.SLO/2) && !t.doubtful(f, p)
}

// Profile returns the model's profile from the store, of this machine or of another one.
// Otherwise it sketches the model, or predicts or measures it. A replica that does not lead only
// looks into the store, unless alone is set. After a provisional profile, Refine finds the full
// one. The profile includes the times on the nodes' GPUs ([profiler.Profile.With]) if the
// function may run there.
func (t *Finder) Profile(ctx context.Context, f *provider.Function, file string, alone bool) (prepared string, p *profiler.Profile, err error) {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return "", nil, err
	}
	if f.Inference.Device == annotation.DeviceCUDA {
		return t.onlyDevices(ctx, f, hash, file, alone)
	}
	if prepared, p, err = t.onCPU(ctx, f, file, hash, alone); err == nil {
		p, err = t.withDevices(ctx, f, hash, file, p, false)
	}
	return prepared, p, err
}

// onCPU is Profile without GPUs.
func (t *Finder) onCPU(ctx context.Context, f *provider.Function, file, hash string, alone bool) (prepared string, p *profiler.Profile, err error) {
	key := t.Key(hash, f)
	if p = t.stored(key); t.serves(f, p) {
		prepared, err = atOnce(ctx, t, f, file, key, p)
		return prepared, p, err
	}
	if p = t.foreign(ctx, hash, f); p != nil {
		prepared, err = t.Ready(ctx, f, file)
		return prepared, p, err
	}
	if !t.Leading() && !alone {
		return "", nil, ErrFollowing
	}
	if t.Predict {
		if prepared, p, err = t.begin(ctx, f, file, key); t.serves(f, p) || err != nil {
			return prepared, p, err
		}
		if on := t.early(ctx, f, file, p); on != nil {
			return prepared, on, nil
		}
	}
	return t.whole(ctx, f, file, key)
}

// begin returns assumed times or a sketch, to serve with at once if they are good enough, and no profile if the model
// cannot be sketched. It sketches one model at a time.
func (t *Finder) begin(ctx context.Context, f *provider.Function, file, key string) (prepared string, p *profiler.Profile, err error) {
	return t.sketching.find(ctx, f.Name, t.Models.Bytes(file), func(ctx context.Context) (prepared string, p *profiler.Profile, err error) {
		if p := t.stored(key); t.serves(f, p) { // Another call has just found it.
			prepared, err := atOnce(ctx, t, f, file, key, p)
			return prepared, p, err
		}
		if prepared, p = t.assume(ctx, f, file); !t.serves(f, p) {
			prepared, p, err = t.sketch(ctx, f, file)
		}
		if t.serves(f, p) {
			t.keep(f, key, p)
			t.sketched.Store(key, prepared)
		}
		return prepared, p, cmp.Or(ctx.Err(), err)
	})
}

// Refine finds the full profile that replaces a provisional one. A replica that does not lead
// gets ErrFollowing until the leader has stored it.
func (t *Finder) Refine(ctx context.Context, f *provider.Function, file string) (prepared string, p *profiler.Profile, err error) {
	hash, err := t.Models.Hash(file)
	if err != nil {
		return "", nil, err
	}
	if f.Inference.Device == annotation.DeviceCUDA {
		return t.onlyDevices(ctx, f, hash, file, false)
	}
	key := t.Key(hash, f)
	if p = t.stored(key); p != nil && !p.Provisional && t.serves(f, p) {
		prepared, err = t.Ready(ctx, f, file)
	} else if !t.Leading() {
		if p = t.foreign(ctx, hash, f); p == nil || p.Provisional {
			return "", nil, ErrFollowing
		}
		prepared, err = t.Ready(ctx, f, file)
	} else if on := t.early(ctx, f, file, p); on != nil {
		prepared, err = t.Ready(ctx, f, file)
		return prepared, on, err
	} else {
		prepared, p, err = t.whole(ctx, f, file, key)
	}
	if err == nil {
		p, err = t.withDevices(ctx, f, hash, file, p, true)
	}
	return prepared, p, err
}

// whole returns the full profile from the store, otherwise predicts or measures it.
func (t *Finder) whole(ctx context.Context, f *provider.Function, file, key string) (prepared string, p *profiler.Profile, err error) {
	return t.measuring.find(ctx, f.Name, t.Models.Bytes(file), func(ctx context.Context) (prepared string, p *profiler.Profile, err error) {
		until := f.Inference.SLO / 2
		if p := t.stored(key); p != nil && !p.Provisional { // Another call may just have found it.
			if t.serves(f, p) {
				prepared, err := t.Ready(ctx, f, file)
				return prepared, p, err
			}
			for _, m := range largestBatches(p) { // Other functions need the batches of the stored one.
				until = max(until, time.Duration(m.Median)*time.Microsecond)
			}
		}
		prepared, p, err = t.find(ctx, f, file, until)
		if err != nil {
			return "", nil, err
		}
		t.keep(f, key, p)
		return prepared, p, nil
	})
}

// keep stores a profile if this replica leads.
func (t *Finder) keep(f *provider.Function, key string, p *profiler.Profile) {
	p.Sizes = SizesOf(f).Key()
	if !t.Leading() {
		return
	}
	if err := t.Profiles.PutProfile(key, p); err != nil {
		// The function is served anyway.
		t.Logger.Error().Str("function", f.Name).Err(err).Msg("could not store the profile; a restart will predict or measure the model again")
	}
}

// sketch finds times to begin with. It returns nil if that fails; then the model needs a full
// profile before it serves. The error is [ErrPermanent]: the full profile would fail, too.
func (t *Finder) sketch(ctx context.Context, f *provider.Function, file string) (prepared string, p *profiler.Profile, err error) {
	began, log := time.Now(), t.Logger.With().Str("function", f.Name).Logger()
	prepared, p, err = t.models(f).Sketch(ctx, file, f.Inference.MaxBatch, f.Inference.SLO/2)
	if err != nil {
		if ctx.Err() == nil {
			log.Info().AnErr("why", err).Msg("the model could not be sketched")
		}
		if !errors.Is(err, ErrPermanent) {
			err = nil
		}
		return "", nil, err
	}
	log.Info().Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Bool("provisional", p.Provisional).Msg("sketched the model's times")
	return prepared, p, nil
}

// assume returns the times that a model is assumed to have, and no profile if that is not to be said.
func (t *Finder) assume(ctx context.Context, f *provider.Function, file string) (prepared string, p *profiler.Profile) {
	assumer, ok := t.models(f).(Assumer)
	if !ok {
		return "", nil
	}
	began, log := time.Now(), t.Logger.With().Str("function", f.Name).Logger()
	prepared, p, err := assumer.Assume(ctx, file, f.Inference.MaxBatch, f.Inference.SLO/2)
	switch {
	case errors.Is(err, ErrNotAssumed) || ctx.Err() != nil:
		return "", nil
	case err != nil:
		log.Debug().AnErr("why", err).Msg("the model's times cannot be assumed")
		return "", nil
	}
	log.Info().Dur("took_ms", time.Since(began)).Msg("assumed the model's times from its operators' work")
	return prepared, p
}

// find predicts the model's times. It measures them if Predict is false or if they cannot be
// predicted.
func (t *Finder) find(ctx context.Context, f *provider.Function, file string, until time.Duration) (prepared string, p *profiler.Profile, err error) {
	if t.Predict {
		prepared, p, err := t.predict(ctx, f, file, until)
		if p != nil || err != nil {
			return prepared, p, err
		}
	}
	began := time.Now()
	t.Logger.Info().Str("function", f.Name).Msg("measuring the model")
	prepared, p, err = t.models(f).Measure(ctx, file, f.Inference.MaxBatch, until)
	if err != nil {
		return "", nil, err
	}
	t.Logger.Info().Str("function", f.Name).Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Msg("measured the model")
	return prepared, p, nil
}

// predict predicts the model's times. If it returns no profile and no error, the model must be
// measured and the log says why. The error is ctx's or [ErrPermanent].
func (t *Finder) predict(ctx context.Context, f *provider.Function, file string, until time.Duration) (prepared string, p *profiler.Profile, err error) {
	began, log := time.Now(), t.Logger.With().Str("function", f.Name).Logger()
	prepared, p, err = t.models(f).Predict(ctx, file, f.Inference.MaxBatch, until)
	switch {
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case errors.Is(err, ErrPermanent):
		return "", nil, err
	case errors.Is(err, ErrUnpredictable):
		log.Info().AnErr("why", err).Msg("cannot predict the model's times from its operators; measuring the model instead")
		return "", nil, nil
	case err != nil:
		log.Warn().Err(err).Msg("could not predict the model's times; measuring the model instead")
		return "", nil, nil
	case t.doubtful(f, p):
		log.Info().AnErr("why", t.Rules.Hopeless(f, t.Rules.Promised(f, p))).Msg("by the prediction the model cannot meet its objective; measuring the model instead")
		return "", nil, nil
	}
	log.Info().Dur("took_ms", time.Since(began)).Int("largest_batch", p.MaxBatch()).Msg("predicted the model's times from its operators")
	return prepared, p, nil
}

// atOnce is Ready for a model with a stored profile. A provisional one serves as it was sketched, as the function does
// for which it was: preparing a large model takes a while, and Refine waits for that.
func atOnce(ctx context.Context, t *Finder, f *provider.Function, file, key string, p *profiler.Profile) (prepared string, err error) {
	if dir, ok := t.sketched.Load(key); ok && p.Provisional {
		prepared = dir.(string)
		if _, err := os.Stat(prepared); err == nil {
			return prepared, nil
		}
	}
	return t.Ready(ctx, f, file)
}

// Ready prepares a function's model that does not have to be measured.
func (t *Finder) Ready(ctx context.Context, f *provider.Function, file string) (prepared string, err error) {
	err = t.preparing.do(ctx, f.Name, t.Models.Bytes(file), func(ctx context.Context) error {
		prepared, err = t.models(f).Prepare(ctx, file)
		return err
	})
	return prepared, err
}

// Progress says what is being found out about a function's models, or for what they wait; "" for
// neither.
func (t *Finder) Progress(function string) string {
	for _, l := range []*line{t.measuring, t.sketching, t.preparing, t.dividing} {
		if text := l.state(function); text != "" {
			return text
		}
	}
	return ""
}
