package keeper

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

const (
	// leastPause is the minimum time between two looks, however many requests ask for
	// one.
	leastPause = 5 * time.Millisecond
	// share limits short looks to 1/share of one core.
	share = 5
)

// Kick asks for a look. It is safe for concurrent use.
type Kick chan struct{}

// NewKick returns a Kick that has not asked for a look yet.
func NewKick() Kick { return make(Kick, 1) }

// Now asks for a look now, and does not wait for it.
func (k Kick) Now() {
	select {
	case k <- struct{}{}:
	default:
	}
}

// Loop is a controller's main loop.
type Loop struct {
	Kick Kick
	// Events are instances' new states. Each goes to Observe, and a look follows. The
	// loop ends when Events is closed. Both may be nil.
	Events  <-chan cluster.Instance
	Observe func(cluster.Instance)
	// Look looks at the load and returns the maximum time until the next look.
	Look func(now time.Time) time.Duration
	// Rest returns the pause after a look that took this long.
	Rest func(took time.Duration) time.Duration
	// Sample is called every Period.
	Sample func(now time.Time)
	Period time.Duration
}

// Run loops until ctx ends.
func (l Loop) Run(ctx context.Context) {
	next, samples := time.NewTimer(0), time.NewTicker(l.Period)
	defer next.Stop()
	defer samples.Stop()
	var rested time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case in, ok := <-l.Events:
			if !ok {
				return
			}
			l.Observe(in)
		case now := <-samples.C:
			l.Sample(now)
			continue
		case <-next.C:
		case <-l.Kick:
		}
		began := time.Now()
		if pause := rested.Sub(began); pause > 0 {
			next.Reset(pause)
			continue
		}
		next.Reset(l.Look(began))
		now := time.Now()
		rested = now.Add(l.Rest(now.Sub(began)))
	}
}

// Rest returns the pause after a look: four times the look's duration, at least 5 ms and at
// most a tick. Looks of up to a quarter of a tick thus take at most a fifth of a core: a pause
// of 40 ms follows a look of 10 ms. Longer looks take more, since the load must still be seen:
// with ticks of 100 ms a look of 60 ms takes 60 of 160 ms.
func Rest(took, tick time.Duration) time.Duration {
	return max(leastPause, min((share-1)*took, tick))
}
