package batching

import "time"

// clock turns times into durations since the first one, which are quicker to
// compare and to add.
type clock struct {
	base    time.Time
	started bool
}

// farthest bounds a duration, so that sums of some do not overflow. It is 36
// years.
const farthest = time.Duration(1 << 60)

// since is the time since the first t that was asked for.
func (c *clock) since(t time.Time) time.Duration {
	if !c.started {
		c.base, c.started = t, true
	}
	return max(-farthest, min(t.Sub(c.base), farthest))
}

// time is the inverse of since.
func (c *clock) time(d time.Duration) time.Time { return c.base.Add(d) }
