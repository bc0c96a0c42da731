package engine

import "time"

const (
	// DefaultTimeout is the longest that a batch may take where nothing is said: less
	// than what the dispatcher waits.
	DefaultTimeout = 8 * time.Second
	// FirstTimeout is the same for the first batch of a process, which may compile.
	FirstTimeout = 30 * time.Second
	// patience is how many times its slowest batch a model may take.
	patience = 16
)

// Limit is how long a model's batches may take.
type Limit struct {
	// Timeout is what every batch may take, [DefaultTimeout] if 0. A model that is
	// known to take longer may.
	Timeout time.Duration
	// ran: the process has answered a batch. slowest is the longest of all that were
	// answered, by its predecessors too.
	ran     bool
	slowest time.Duration
}

// Next is how long the next batch may take.
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

// Answered takes in a batch that was answered.
func (l *Limit) Answered(took time.Duration) { l.ran, l.slowest = true, max(l.slowest, took) }

// Fresh: another process runs the next batch.
func (l *Limit) Fresh() { l.ran = false }
