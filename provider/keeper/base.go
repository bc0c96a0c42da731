package keeper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// IdleTicks is the number of ticks between two looks while nothing happens.
const IdleTicks = 10

// Function is a controller's own type of function, which embeds a [Fleet] or a [Service].
type Function interface{ service() *Service }

// Answers are a controller's answers to questions of the provider. All are set.
type Answers[F Function] struct {
	// Describe and Status return the state of a function. They are called with the lock held.
	Describe func(F) Description
	Status   func(F) provider.Status
	// Release ends a function, and keeps its metrics. It returns nil for an absent one.
	Release func(ctx context.Context, name string) error
}

// Base is what all controllers have in common: what they do with their functions by name. A
// controller embeds it. The lock is not held when its methods are called.
type Base[F Function] struct {
	kick      Kick
	lock      sync.Locker
	functions map[string]F
	metrics   *metrics.Metrics
	answers   Answers[F]
}

// NewBase returns the base of a controller with this lock. functions are those that are deployed, by
// full name: the controller adds to them and deletes them.
func NewBase[F Function](lock sync.Locker, functions map[string]F, m *metrics.Metrics, a Answers[F]) Base[F] {
	return Base[F]{kick: NewKick(), lock: lock, functions: functions, metrics: m, answers: a}
}

// Wake makes the controller look at the load at once.
func (b *Base[F]) Wake() { b.kick.Now() }

// Loop runs a loop of the controller until ctx ends. tick is the time between two looks. l needs no
// Kick. If it has no Rest, [Rest] applies.
func (b *Base[F]) Loop(ctx context.Context, tick time.Duration, l Loop) {
	if l.Kick = b.kick; l.Rest == nil {
		l.Rest = func(took time.Duration) time.Duration { return Rest(took, tick) }
	}
	l.Run(ctx)
}

// Describe returns the state of a function; false if it is not deployed.
func (b *Base[F]) Describe(name string) (Description, bool) {
	return ask(b, name, b.answers.Describe)
}

// Status implements [provider.Controller].
func (b *Base[F]) Status(name string) (provider.Status, bool) {
	return ask(b, name, b.answers.Status)
}

func ask[F Function, T any](b *Base[F], name string, about func(F) T) (answer T, ok bool) {
	b.lock.Lock()
	defer b.lock.Unlock()
	fn, ok := b.functions[name]
	if ok {
		answer = about(fn)
	}
	return answer, ok
}

// Change changes a function with the lock held, and wakes the controller. It returns [ErrAbsent] if
// the function is not deployed.
func (b *Base[F]) Change(name string, change func(F)) error {
	b.lock.Lock()
	defer b.lock.Unlock()
	fn, ok := b.functions[name]
	if !ok {
		return fmt.Errorf("%s: %w", name, ErrAbsent)
	}
	change(fn)
	b.Wake()
	return nil
}

// Remove implements [provider.Controller].
func (b *Base[F]) Remove(ctx context.Context, name string) error {
	if err := b.answers.Release(ctx, name); err != nil {
		return err
	}
	b.metrics.Remove(name)
	return nil
}

// End ends the controller's tasks, and refuses all requests from now on.
func (b *Base[F]) End(t *Tasks) {
	b.lock.Lock()
	defer b.lock.Unlock()
	t.End()
	for _, fn := range b.functions {
		fn.service().Dispatcher.Close()
	}
}

// Scaler decides how many instances an ordinary function has. Call its methods with the
// controller's lock held.
type Scaler struct {
	*replica.Scaler
	// Wish is the number that the scale route or the deployment set last, and WishedAt when that was.
	Wish     uint64
	WishedAt time.Time
	// seen is the number of arrivals at the last look.
	seen uint64
}

// Set sets the number of instances until the load changes it.
func (r *Scaler) Set(now time.Time, n uint64, load replica.Load) {
	r.Wish, r.WishedAt = n, now
	r.Scaler.Set(now, int(n), load)
}

// Deployed takes over the settings of a deployment, and its number of instances if that differs from
// the last one set.
func (r *Scaler) Deployed(now time.Time, f *provider.Function, load replica.Load) {
	r.Configure(ScaleSettings(f.Inference))
	if f.Replicas != r.Wish {
		r.Set(now, f.Replicas, load)
	}
}

// Follow adapts the number of instances to the load and returns it. It logs a change, and adds it to the decisions.
func (r *Scaler) Follow(now time.Time, load replica.Load, function string, log *zerolog.Logger, l *decisions.Log) int {
	before, after := r.Wanted(), r.Next(now, load)
	if after != before {
		log.Info().Str("function", function).Int("from", before).Int("to", after).Msg("scaling")
		l.Add(now, function, decisions.Scale, decisions.Fields{
			Program: true, Instances: after, FromInstances: before, Why: whyScaled(load, after), InFlight: load.InFlight, Waiting: load.Waiting,
		})
	}
	return after
}

// whyScaled is why the load asks for a number of instances.
func whyScaled(load replica.Load, after int) string {
	switch {
	case after == 0:
		return string(scaling.Idle)
	case load.InFlight+load.Waiting > 0:
		return fmt.Sprintf("%d requests are in progress and %d wait", load.InFlight, load.Waiting)
	default:
		return "the load of the last seconds needs that many"
	}
}

// Busy reports whether requests have come since it was called last, or are on their way.
func (r *Scaler) Busy(load replica.Load) bool {
	came := load.Arrivals != r.seen
	r.seen = load.Arrivals
	return came || load.InFlight > 0 || load.Waiting > 0
}
