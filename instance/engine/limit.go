package engine

import "time"

const (
	// DefaultTimeout is the default maximum time of a batch. The dispatcher waits
	// longer than that.
	DefaultTimeout = 8 * time.Second
	// FirstTimeout is the minimum of that limit for a process's first batch, which may
	// compile code.
	FirstTimeout = 30 * time.Second
	// patience is the factor between the slowest batch so far and the limit.
	patience = 16
)

// Limit calculates how long a model's batches may take.
type Limit struct {
	// Timeout is the limit of a batch, [DefaultTimeout] if 0. A model whose slowest
	// batch times patience is more gets more.
	Timeout time.Duration
	// ran says that the current process has answered a batch. slowest is the longest
	// batch answered so far, by this process or its predecessors.
	ran     bool
	slowest time.Duration
}

// Next returns how long the next batch may take.
func (l *Limit) Next() time.Duration {
	limit := l.Timeout
	if limit == 0 {
		limit = DefaultTimeout
	}
	if limit = max(limit, patience*l.slowest); !l.ran {
		limit = max(limit, FirstTimeout)
	}
	return limit
}

// Answered records the time of an answered batch.
func (l *Limit) Answered(took time.Duration) { l.ran, l.slowest = true, max(l.slowest, took) }

// Fresh records that a new process runs the next batch.
func (l *Limit) Fresh() { l.ran = false }
