package batching

import "time"

// clock turns times into durations since the first time it saw. Durations are
// quicker to compare and to add.
type clock struct {
	base    time.Time
	started bool
}

// farthest (36 years) bounds a duration, so sums of a few do not overflow.
const farthest = time.Duration(1 << 60)

// since returns the time from the first t that it was ever given to this one.
func (c *clock) since(t time.Time) time.Duration {
	if !c.started {
		c.base, c.started = t, true
	}
	return max(-farthest, min(t.Sub(c.base), farthest))
}

// time is the inverse of since.
func (c *clock) time(d time.Duration) time.Time { return c.base.Add(d) }
