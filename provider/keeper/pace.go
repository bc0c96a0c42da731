package keeper

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

const (
	// leastPause is the least time between two looks, however many requests ask for
	// one.
	leastPause = 5 * time.Millisecond
	// share is the part of one core that short looks may take: 1/share.
	share = 5
)

// Kick asks for a look. It is safe for concurrent use.
type Kick chan struct{}

// NewKick returns one that asks for nothing yet.
func NewKick() Kick { return make(Kick, 1) }

// Now asks for a look now, and does not wait for it.
func (k Kick) Now() {
	select {
	case k <- struct{}{}:
	default:
	}
}

// Loop is what a controller does as long as it runs.
type Loop struct {
	Kick Kick
	// Events are instances' new states, which Observe takes in; a look follows. When
	// they end, so does the loop. Both may be nil.
	Events  <-chan cluster.Instance
	Observe func(cluster.Instance)
	// Look looks at the load and returns the time until the next look at the latest.
	Look func(now time.Time) time.Duration
	// Rest is the pause after a look that took so long.
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

// Rest is the pause after a look that took so long: four times as long, at least 5 ms and at
// most a tick. So looks take a fifth of a core at most as long as one takes a quarter of a tick
// (a look of 10 ms is followed by 40 ms). A longer one takes more, as the load must be seen all
// the same: with ticks of 100 ms a look of 60 ms takes 60 of 160 ms.
func Rest(took, tick time.Duration) time.Duration {
	return max(leastPause, min((share-1)*took, tick))
}
